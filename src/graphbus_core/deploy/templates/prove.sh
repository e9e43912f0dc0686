if [ -f .graphbus/negotiation.lock ]; then
  @build@ --frozen
else
  echo "There is no .graphbus/negotiation.lock: nothing was negotiated, and nothing is to be proved."
fi
