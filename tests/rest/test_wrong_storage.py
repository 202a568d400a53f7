"""A server whose storage is that of another service (rule 82 of docs/rest.md)."""

from . import postgres
from .server import Server


def test_rule_82_nothing_is_taken_where_the_storage_is_that_of_another_service(tmp_path):
    server = Server(tmp_path / "service")
    server.config |= postgres.settings(server.data)
    server.start()
    try:
        client = server.user("anna")
        address = client.upload_url()
        blob = client.upload(b"a video")
        assert client.get("/readyz").status_code == 200
        assert server.stop() == 0
        note = server.data / "service-id"
        note.write_text("another")
        server.start()
        text = "Storage is not that of the database"
        for refused in (
            client.get("/readyz"),
            client.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"}),
            client.put(address["url"], b"a video"),
            client.try_submit(blob),
        ):
            assert (refused.status_code, refused.json()) == (503, {"error": text})
        # What asks for no file is answered as ever.
        assert client.jobs() == []
        assert "that of another service" in server.log_text()
        note.unlink()
        assert server.stop() == 0
        server.start()
        assert client.get("/readyz").status_code == 200
        client.upload(b"a video")
    finally:
        server.kill()
