"""HTTP proxies, as HTTP_PROXY, HTTPS_PROXY and NO_PROXY name them."""

from __future__ import annotations

import base64
import re
import urllib.parse
import urllib.request
from dataclasses import dataclass

from ._errors import misuse


@dataclass(frozen=True)
class Proxy:
    host: str
    port: int
    headers: dict[str, str]
    """What authorizes requests to it."""


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """Return the proxy for a server, or None. Raise UsageError if its address cannot be used."""
    named = urllib.request.getproxies().get(scheme)
    if not named or urllib.request.proxy_bypass(host):
        return None
    try:
        parts = urllib.parse.urlsplit(named if "://" in named else f"http://{named}")
        usable = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:  # TLS to a proxy would be left out, and SOCKS is another protocol
        hidden = re.sub(r"^(.*://)?.*@", r"\1…@", named)  # a login, which would be in logs
        raise misuse(
            f"{scheme.upper()}_PROXY must be an address such as http://proxy:8080, "
            f"not {hidden!r:.200}"
        )
    return Proxy(parts.hostname or "", parts.port or 8080, _authorization(parts))


def _authorization(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    user = urllib.parse.unquote(proxy.username)
    password = urllib.parse.unquote(proxy.password or "")
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {secret}"}
