from agents.inventory_service import InventoryService
from agents.notification_service import NotificationService
from agents.order_processor import OrderProcessor
from graphbus_core.testing import run_graph


def test_an_order_is_added_up_and_announced():
    orders, inventory = OrderProcessor(), InventoryService()
    with run_graph(orders, inventory, NotificationService) as graph:
        done = orders.process_order("7", [{"price": 12.5, "qty": 2.0}])
        graph.assert_delivered_to("NotificationService")
    assert done == {"status": "confirmed", "total": 25.0}
    assert inventory.orders == 1
