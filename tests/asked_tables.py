"""The tables that tests of SQL ask about: one of everything that the facts can say."""

from datetime import date

from dither.core.units import PrivacyUnit
from dither.query.facts import Catalog, Column, Table, Through

EVENTS = PrivacyUnit(dataset="events", key="user_id")
SHOP = PrivacyUnit(dataset="shop", key="uid")
TABLES = (
    Table(
        name="events",
        unit=EVENTS,
        columns=(
            Column(name="user_id", type="int"),
            Column(name="city", type="text"),
            Column(name="kind", type="text", values=("a", "b", "c")),
            Column(name="amount", type="float", low=0, high=100),
            Column(name="qty", type="int", low=0, high=10),
            Column(name="raw", type="float"),
            Column(name="ts", type="timestamp"),
            Column(name="day", type="date"),
            Column(name="vip", type="bool"),
        ),
    ),
    Table(name="customers", unit=SHOP, columns=(Column(name="uid", type="int"), Column(name="age", type="int", low=0, high=120))),
    Table(
        name="orders",
        unit=SHOP,
        through=Through(column="cust", table="customers", key="uid"),
        columns=(Column(name="order_id", type="int"), Column(name="cust", type="int"), Column(name="price", type="float", low=0, high=50)),
    ),
    Table(
        name="lines",
        unit=SHOP,
        through=Through(column="order_id", table="orders", key="order_id"),
        columns=(Column(name="order_id", type="int"), Column(name="sku", type="text")),
    ),
    Table(name="readings", unit=PrivacyUnit(dataset="readings"), columns=(Column(name="x", type="float", low=0, high=1),)),
    Table(
        name="cities",
        key="city",
        columns=(
            Column(name="city", type="text"),
            Column(name="region", type="text", values=("north", "south")),
            Column(name="pop", type="int"),
        ),
    ),
    Table(
        name="calendar",
        key="day",
        columns=(Column(name="day", type="date", values=(date(2024, 1, 1), date(2024, 1, 2))), Column(name="holiday", type="bool")),
    ),
    Table(name="codes", columns=(Column(name="code", type="int"),)),
    Table(
        name="odd names",
        unit=PrivacyUnit(dataset="odd", key="a.b"),
        columns=(Column(name="a.b", type="int"), Column(name='say "x"', type="text"), Column(name="a0", type="text")),
    ),
)
CATALOG = Catalog.of(*TABLES)
