"""Renewals of URLs for tests."""

from __future__ import annotations

from collections.abc import Callable

from delta_sharing_client.model.names import Table
from delta_sharing_client.scan.url_renewal import ListedUrlRenewal, ListedUrls
from delta_sharing_client.secrets import SecretUrl


class FunctionRenewal(ListedUrlRenewal):
    """Renews one URL at a time, by a function of the id of the file and the refused URL."""

    def __init__(self, fresh: Callable[[str, SecretUrl], SecretUrl]) -> None:
        self._fresh = fresh
        self._refused: tuple[str, SecretUrl] | None = None
        self._urls: dict[str, SecretUrl] = {}
        super().__init__(Table("table", "share", "schema"), 0, self._renewed_urls, ListedUrls({}))

    def renew(self, file_id: str, refused: SecretUrl) -> SecretUrl:
        self._refused = file_id, refused
        return super().renew(file_id, refused)

    def _renewed_urls(self) -> ListedUrls:
        assert self._refused is not None
        file_id, refused = self._refused
        self._urls = {**self._urls, file_id: self._fresh(file_id, refused)}
        return ListedUrls(self._urls)
