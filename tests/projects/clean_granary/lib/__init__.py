"""Tools that the office uses: units for the agents, a shell for the scripts."""

from lib.shell import capture as output_of
