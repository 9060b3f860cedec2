"""The changes of a shared table: rows inserted, updated and deleted between two versions."""
