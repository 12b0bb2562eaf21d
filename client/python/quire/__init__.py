# SPDX-License-Identifier: Apache-2.0
"""Client of Quire, a server for large language models.

    import quire

    with quire.Client("127.0.0.1:50051") as client:
        for response in client.generate("Once upon a time", max_tokens=100, temperature=0.7):
            print(response.text_delta, end="", flush=True)

AsyncClient has the same methods for asyncio. A stream resumes by itself after its connection was lost. quire.v1 has the
messages of the wire, and quire.guides what an output must be: a value of a JSON schema, for example.
"""

from quire import guides, v1
from quire._async_client import AsyncClient
from quire._client import Client
from quire._errors import Error
from quire._requests import EmbedOptions, Options, Sample
from quire._version import VERSION as __version__

__all__ = ["AsyncClient", "Client", "EmbedOptions", "Error", "Options", "Sample", "__version__", "guides", "v1"]
