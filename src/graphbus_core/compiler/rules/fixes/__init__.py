"""Findings -> changes that mend them."""

from collections.abc import Callable

from graphbus_core.compiler.rules.fixes.bodies import (
    add_guard,
    annotate_parameter,
    annotate_result,
    catch_exceptions_only,
    make_default_in_body,
)
from graphbus_core.compiler.rules.fixes.names import (
    add_field,
    add_or_rename_parameter,
    adopt_usual_shape,
    rename_key_read,
    rename_key_returned,
    rename_key_sent,
    rename_to_producers_name,
    rename_topic,
)
from graphbus_core.compiler.rules.fixes.rewrite import Refused
from graphbus_core.compiler.rules.wiring import Evidence
from graphbus_core.model.findings import Finding, Fix

Mender = Callable[[Finding, Evidence], Fix]

MENDERS: dict[str, Mender] = {
    "GB001": rename_topic,
    "GB003": rename_key_read,
    "GB004": rename_key_sent,
    "GB101": add_or_rename_parameter,
    "GB102": add_field,
    "GB103": rename_key_returned,
    "GB110": rename_to_producers_name,
    "GB120": adopt_usual_shape,
    "GB201": annotate_parameter,
    "GB202": annotate_result,
    "GB210": add_guard,
    "GB301": make_default_in_body,
    "GB302": catch_exceptions_only,
}


def mend(finding: Finding, evidence: Evidence) -> Fix | None:
    """Make the change for a finding, or None when it cannot be made with certainty."""
    try:
        return MENDERS[finding.code](finding, evidence)
    except Refused:
        return None
