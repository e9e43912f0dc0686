git fetch --quiet "$PWD/negotiation.bundle" HEAD
if ! git diff --quiet HEAD FETCH_HEAD -- @guarded@; then
  echo "The negotiation has changed the pipeline itself; that is never proposed." >&2
  exit 1
fi
