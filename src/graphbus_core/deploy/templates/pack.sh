if [ -f .graphbus/negotiation.lock ]; then git add --force .graphbus/negotiation.lock; fi
if git diff --cached --quiet && [ "$(git rev-parse HEAD)" = "$GRAPHBUS_BASE" ]; then
  echo "The agents have nothing to propose."
  exit 0
fi
if ! git diff --cached --quiet; then git commit --quiet --message "Lock what the agents agreed on"; fi
graphbus report --output graphbus-report.html --force
git add --force graphbus-report.html
git commit --quiet --message "Report how the agents agreed"
git bundle create negotiation.bundle HEAD "^$GRAPHBUS_BASE"
