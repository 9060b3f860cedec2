"""Test of an installed wheel: serves sample tables on loopback, and reads one with pandas."""

from __future__ import annotations

import tempfile
from pathlib import Path

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer, write_sample_tables

if __name__ == "__main__":
    checkout = Path(__file__).resolve().parents[1]
    if Path(ds.__file__).resolve().is_relative_to(checkout / "delta_sharing_client"):
        raise SystemExit("the import found the checkout, not the wheel")
    with (
        tempfile.TemporaryDirectory() as folder,
        SharingServer(write_sample_tables(Path(folder))) as server,
        ds.SharingClient(server.profile) as client,
    ):
        frame = client.table("retail.sales.customers").scan(columns=["customer_id"], limit=10).to_pandas()
    print(f"delta-sharing-client {ds.__version__}: read {len(frame)} rows from the embedded server")
