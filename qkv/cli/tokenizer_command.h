// qkv tokenizer train|encode|decode
#pragma once

namespace CLI {
class App;
}

namespace qkv::cli {

// Adds the subcommand "tokenizer" with its own; each runs when it is parsed.
void add_tokenizer_command(CLI::App& app);

}  // namespace qkv::cli
