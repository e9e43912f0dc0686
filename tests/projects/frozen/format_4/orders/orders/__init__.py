"""An order pipeline: priced, paid, booked."""
