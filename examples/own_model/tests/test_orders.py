from agents.inventory_service import InventoryService
from agents.notification_service import NotificationService
from agents.order_processor import OrderProcessor
from graphbus_core import connect


def test_an_order_is_added_up_and_announced():
    orders, inventory = OrderProcessor(), InventoryService()
    with connect(orders, inventory, NotificationService()):
        done = orders.process_order("7", [{"price": 12.5, "qty": 2.0}])
    assert done == {"status": "confirmed", "total": 25.0}
    assert inventory.orders == 1
