# Sourced by run and check_all: stages with a name, a limit and their time.
failed=0
summary=""

# stage MINUTES NAME COMMAND...: the command, ended after so many minutes, or when TOTAL_MINUTES of all stages are over.
stage() {
  local limit=$(($1 * 60)) name=$2 start=$SECONDS status=0 result=passed
  shift 2
  if [ -n "${TOTAL_MINUTES:-}" ] && [ $((TOTAL_MINUTES * 60 - SECONDS)) -lt "$limit" ]; then
    limit=$((TOTAL_MINUTES * 60 - SECONDS))
  fi
  printf '\n== %s: %s\n' "$name" "$*"
  if [ "$limit" -gt 0 ]; then
    timeout --kill-after=30 "$limit" "$@" || status=$?
  else
    status=124
  fi
  case $status in
    0) ;;
    124 | 137) result="FAILED: out of time" ;;
    *) result="FAILED: status $status" ;;
  esac
  [ "$status" -eq 0 ] || failed=$((failed + 1))
  summary+=$(printf '%6d s  %-45s %s' $((SECONDS - start)) "$name" "$result")$'\n'
  printf '== %s: %s after %d s\n' "$name" "$result" $((SECONDS - start))
}

# The stages again, and the exit status.
finish() {
  printf '\n%s%6d s  in all, %d failed\n' "$summary" "$SECONDS" "$failed"
  [ "$failed" -eq 0 ]
}
