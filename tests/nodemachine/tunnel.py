"""HTTP CONNECT proxy on a node: the API server's way to pods and services, whose addresses are of this network alone.

A pod runs it as `python -c`, with the port to listen on and the folder of its certificate, its key, and the authority
whose clients it serves. The standard library only.
"""

from __future__ import annotations

import asyncio
import ssl
import sys

CONNECT_SECONDS = 5.0
CHUNK = 65536


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect one caller to the address in its request line."""
    try:
        target = (await reader.readline()).split()[1].decode()
        while (await reader.readline()).strip():
            continue
        host, _, port = target.rpartition(":")
        connecting = asyncio.open_connection(host.strip("[]"), int(port))
        there, out = await asyncio.wait_for(connecting, CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        writer.close()
        print("not connected:", error, flush=True)
        return
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await asyncio.gather(copy(reader, out), copy(there, writer))


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until either side ends, and end the target."""
    try:
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()


async def main(port: int, folder: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=f"{folder}/ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    server = await asyncio.start_server(serve, port=port, ssl=context)
    print("listens", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
