# Sourced by run and check_all: stages with a name, a limit and their time.
failed=0
summary=""
uncounted=0  # seconds of stages that the promise is not about

# stage MINUTES NAME COMMAND...: the command, ended after so many minutes.
stage() {
  local limit=$(($1 * 60)) name=$2 start=$SECONDS status=0
  shift 2
  printf '\n== %s: %s\n' "$name" "$*"
  timeout --kill-after=30 "$limit" "$@" || status=$?
  case $status in
    0) result=passed ;;
    124 | 137) result="FAILED: out of time" ;;
    *) result="FAILED: status $status" ;;
  esac
  [ "$status" -eq 0 ] || failed=$((failed + 1))
  took=$((SECONDS - start))
  summary+=$(printf '%6d s  %-50s %s' "$took" "$name" "$result")$'\n'
  printf '== %s: %s after %d s\n' "$name" "$result" "$took"
}

# Seconds that count towards the promise, so far.
counted() {
  echo $((SECONDS - uncounted))
}

# further MINUTES NAME COMMAND...: a stage where the promise leaves it so many minutes.
further() {
  if [ $(($(counted) + $1 * 60)) -le $((PROMISE_MINUTES * 60)) ]; then
    stage $(($1 * 2)) "${@:2}"
  else
    summary+=$(printf '%6s    %-50s %s' - "$2" "left to make check-all: needs $1 minutes")$'\n'
  fi
}

# record TARGET NAME: what the last stage found, in the list of what each suite last ran on.
record() {
  local list=.ci/last_runs.txt commit
  commit=$(git rev-parse --short=10 HEAD)
  git diff --quiet HEAD -- . ":!$list" || commit+="+changes"
  { grep '^#' "$list"
    { grep -v "^#\|^$1 " "$list" || true
      printf '%-11s %-18s %s %4d min  %-22s %s\n' "$1" "$commit" "$(date +%F)" $(((took + 59) / 60)) "$result" "$2"
    } | sort
  } >"$list.new"
  mv "$list.new" "$list"
}

# The stages again, and the exit status. Beyond twice the promise is a failure, where one is made.
finish() {
  printf '\n%s%6d s  in all, %d failed\n' "$summary" "$SECONDS" "$failed"
  if [ -n "${PROMISE_MINUTES:-}" ]; then
    printf '%6d s  counted; %d minutes are promised\n' "$(counted)" "$PROMISE_MINUTES"
    if [ "$(counted)" -gt $((PROMISE_MINUTES * 120)) ]; then
      echo "FAILED: more than twice the promise"
      failed=$((failed + 1))
    fi
  fi
  [ "$failed" -eq 0 ]
}
