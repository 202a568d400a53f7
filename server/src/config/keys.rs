//! What each setting means.

/// One setting.
pub(super) struct Key {
    /// `name`, or `section.name`.
    pub(super) path: &'static str,
    /// For the operator.
    pub(super) meaning: &'static str,
}

impl Key {
    /// Its environment variable, without the prefix.
    pub(super) fn environment(&self) -> String {
        self.path.replace('.', "_").to_uppercase()
    }
}

const fn key(path: &'static str, meaning: &'static str) -> Key {
    Key { path, meaning }
}

/// All of them, section by section, in the order in which they are printed.
pub(super) const KEYS: &[Key] = &[
    key("data", "Folder of the database, the videos and the scenes; made if it is not there."),
    key(
        "database",
        "Where the rows are if many machines share them: postgres://user:password@host:port/database, with ?sslmode=require\n\
         where it is far. Absent: in the folder. See docs/many-machines.md.",
    ),
    key(
        "storage",
        "Where videos and scenes are if many machines share them: file:///srv/scenes, a folder that all of\n\
         them see, or s3://bucket, gs://bucket, az://account/container. See docs/many-machines.md.",
    ),
    key(
        "secrets",
        "File of secrets, the same on all machines. Absent: secrets.json in the folder. The environment variable\n\
         LIBRECONSTRUCT_SECRETS_JSON gives its content instead.",
    ),
    key("listen", "Address and port of the server."),
    key(
        "public_url",
        "What addresses of uploads and downloads begin with, for example https://scenes.example.org.\n\
         Absent: the host by which the client reached the server.",
    ),
    key("workers", "Jobs that run at once beside the server. 0: none, `reconstruct worker` runs them."),
    key(
        "separate_workers",
        "Each worker in a process of its own: what brings one down leaves the server and the others alone.",
    ),
    key("worker_threads", "Threads of one worker. 0: as many as there are cores."),
    key("insecure_http", "Allow plain HTTP on addresses that other machines can reach."),
    key(
        "tls_certificate",
        "PEM file with the chain of certificates; read again on SIGHUP (on Windows: at the start only).",
    ),
    key("tls_key", "PEM file with the private key."),
    key("h2c", "Allow HTTP/2 without TLS, where a client begins with it."),
    key(
        "trusted_proxies",
        "Addresses of proxies whose X-Forwarded-For, -Proto, -Host and X-Request-Id are believed.",
    ),
    key(
        "cors_origins",
        "Origins whose pages may use upload and download addresses in a browser; \"*\" is everyone.",
    ),
    key(
        "web",
        "Serve the web application: pages on which users sign in, make and revoke keys, and see their scenes. Who may sign in is\n\
         invited with `reconstruct users invite`.",
    ),
    key(
        "public_view",
        "Let everybody look at finished jobs that are `public`, in a browser at /view/JOB_ID, and fetch their .spz file,\n\
         preview and camera there. Others have no access to anything else, nor to jobs that are not public.",
    ),
    key("error_details", "Add `code` and `request_id` to the bodies of errors."),
    key("extra_fields", "Add `error_code` and `error_message` to jobs."),
    key("metrics", "Serve /metrics (Prometheus), to this machine and to `operators`. It names no user."),
    key("operators", "Networks, as 192.0.2.0/24, from which /metrics may be read besides this machine."),
    key(
        "log",
        "off, error, warn, info, debug or trace; or levels by target, as in info,access=debug (every request).",
    ),
    key("log_format", "auto, json or text. auto: text on a terminal, else json."),
    key(
        "otlp_endpoint",
        "Where traces go: a collector of OpenTelemetry that takes OTLP over HTTP, as http://127.0.0.1:4318. Absent: nowhere.",
    ),
    key("max_attempts", "How often in a row the program may break down over a job before the job fails."),
    key("lease_seconds", "How long a worker keeps a job without a sign of life."),
    key("min_free_bytes", "Bytes that must stay free on the disk for uploads and jobs to be accepted."),
    key(
        "queue",
        "In which order waiting jobs are taken up: submitted (the first first), or users (users take turns).\n\
         The same for the server and all its workers.",
    ),
    key("max_job_hours", "How long a job may be worked on, in all its attempts; then it fails. 0: no limit."),
    key(
        "checkpoint_seconds",
        "How old the stored state of a training is, in seconds, when a newer one is stored for other machines, where many share\n\
         a database: so much of it is lost with its machine at most, and what the upload takes. Below 60 it is as if it were 60.\n\
         A state of a million Gaussians has 0.7 GB.",
    ),
    key(
        "drain_seconds",
        "How long a worker of many machines may take, when it is asked to end, to stop and to store its job for the others.\n\
         What stops it for good (Kubernetes, systemd) should wait longer.",
    ),
    key(
        "stop_delay_seconds",
        "How long the server goes on taking connections and requests when it is asked to stop, while /readyz says 503 already: as long\n\
         as what chooses among servers takes to hear of it. 0: it takes none from then on. What stops it for good should wait longer.",
    ),
    key("connections.max_connections", "Connections at once; more are answered with 503."),
    key(
        "connections.max_connections_per_address",
        "Connections of one address (of one /64 in IPv6) at once, but for trusted proxies. When few places are left, no\n\
         address may have more than a quarter of them. 0: no limit.",
    ),
    key(
        "connections.max_uploads",
        "Uploads at once; more are answered with 503. Each takes 2 MiB of memory.",
    ),
    key(
        "connections.max_uploads_per_user",
        "Uploads of one user at once; more are answered with 429. When few are left, no user may have more than a quarter\n\
         of what all others leave, but two always.",
    ),
    key(
        "connections.header_timeout_seconds",
        "A request's head must be complete so long after its first byte, the first one of a connection after its beginning.",
    ),
    key(
        "connections.idle_timeout_seconds",
        "A connection without a request is closed after so long: longer than clients, and proxies in front of the server, keep\n\
         one for their next request. When more than half of the places are taken, the time above counts, if it is shorter.",
    ),
    key(
        "connections.max_age_seconds",
        "A connection takes no new requests after so long: HTTP/2 is told at once, HTTP/1.1 with its next answer\n\
         (Connection: close). What is on its way then comes to its end.",
    ),
    key(
        "rate_limits.requests_per_minute",
        "Requests of one user that are neither of the following. 0: no limit, as for all rates.",
    ),
    key("rate_limits.requests_burst", "So many at once."),
    key("rate_limits.submits_per_hour", "Jobs that one user submits."),
    key("rate_limits.submits_burst", "So many at once."),
    key("rate_limits.uploads_per_hour", "Upload addresses that one user asks for."),
    key("rate_limits.uploads_burst", "So many at once."),
    key("rate_limits.failed_authentications_per_minute", "Answers 401 to one address; then it is 429."),
    key("limits.max_upload_bytes", "Largest video."),
    key(
        "limits.upload_lifetime_minutes",
        "How long an upload address works; a transfer begun in time may end later.",
    ),
    key("limits.upload_retention_hours", "How long an uploaded video waits for a job before it is removed."),
    key("limits.max_queued_jobs", "Waiting jobs of one user."),
    key("limits.max_stored_bytes", "Bytes of videos and scenes of one user. Absent: no limit."),
    key("limits.min_gaussians", "Smallest training_max_num_gaussians."),
    key("limits.max_gaussians", "Largest training_max_num_gaussians."),
    key("limits.max_steps", "Largest training_num_steps."),
    key("limits.idempotency_hours", "How long the answer to an Idempotency-Key is kept."),
    key(
        "webhooks.max_per_user",
        "Addresses that one user may register to be told when a job ends. 0: none, and nobody is told anything.",
    ),
    key(
        "webhooks.allow_http",
        "Tell addresses without TLS too: what is told can be read by everybody in between.",
    ),
    key(
        "webhooks.allowed_networks",
        "Networks, as 10.1.0.0/16, in which addresses may be told besides those that everybody on the Internet can reach. Users\n\
         can make this server send requests there: name none in which others trust whoever can reach them.",
    ),
    key(
        "oidc.issuer",
        "Address of a service by which users sign in to the web application (OpenID Connect), as it calls itself:\n\
         https://login.example.org/realms/main. Absent: none. What to register there, and who may sign in: docs/web.md.",
    ),
    key("oidc.client_id", "What that service calls this one."),
    key(
        "oidc.client_secret_file",
        "File with the secret that it has given. The environment variable LIBRECONSTRUCT_OIDC_CLIENT_SECRET gives it instead.\n\
         Absent: it has given none.",
    ),
    key("oidc.name", "What users call it: \"Sign in with …\"."),
    key("oidc.scopes", "What it is asked to say of users; openid among it."),
    key(
        "oidc.allowed_domains",
        "Only who has an address of mail in one of these domains, which it has verified, may sign in by it. Empty: whoever it knows.",
    ),
    key(
        "oidc.required_claims",
        "Only of whom it says all of this may sign in by it, for example groups=scenes: the text of a claim, or one of a list.",
    ),
    key(
        "oidc.create_users",
        "Add whoever may sign in by it and is nobody here yet. Else `reconstruct users link` says who is who.",
    ),
    key("oidc.new_users_tier", "What those users may do: free or enterprise."),
    key(
        "oidc.allow_http",
        "Ask it without TLS too: whoever is in between can sign in as anybody. For tests.",
    ),
    key(
        "oidc.allowed_networks",
        "Networks, as 10.1.0.0/16, in which it may be, besides where everybody on the Internet can reach it.",
    ),
    key(
        "reconstruction.device",
        "Where training runs: auto, cpu, gpu, or part of the name of a graphics adapter.",
    ),
    key(
        "reconstruction.max_frames",
        "At most this many key frames. Absent: 150 where training runs on the CPU, 300 on a GPU.",
    ),
    key("reconstruction.max_resolution", "Long side of the frames in pixels at most."),
    key("reconstruction.training_max_resolution", "Long side of the training pictures in pixels at most."),
    key(
        "reconstruction.sh_degree",
        "Degree of the spherical harmonics, 0 to 3: how much colour may depend on direction.",
    ),
    key("reconstruction.seed", "Fixes every random choice."),
    key(
        "reconstruction.turntable",
        "Make a film around each scene, too, which its owner can download. The device renders it after the training.",
    ),
    key(
        "reconstruction.formats",
        "Further files of each scene, which its owner can download: sog, which web pages with PlayCanvas load, and glb, glTF.",
    ),
];
