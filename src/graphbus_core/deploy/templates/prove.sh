if [ -f .graphbus/negotiation.lock ]; then
  @build@ --frozen
else
  echo "There is no .graphbus/negotiation.lock: nothing was negotiated, so there is nothing to verify."
fi
