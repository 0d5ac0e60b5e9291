// How a run is started.
#pragma once

namespace qkv {

// A run that the folder holds already is refused, continued or replaced.
enum class StartMode { fresh, resume, overwrite };

}  // namespace qkv
