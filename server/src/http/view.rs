//! The viewer of public scenes (rule 72 of docs/rest.md): a page, and the files that it shows, open to everybody if the
//! operator allows it.
//!
//! `public` opens nothing under `/api/v1`. A job that is private, not finished or unknown gets the same answer here,
//! and so does every job if the operator allows no viewer. Caches must ask again before they show anything, so that a
//! job that is made private or deleted is gone at once.

use std::collections::VecDeque;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY};
use libreconstruct::job::{ArtifactKind, JobId, PublicJob};
use sha2::{Digest, Sha256};

use super::body::ResponseBody;
use super::download;
use super::error::ApiError;
use super::exchange::Exchange;
use super::json as json_body;
use super::response::{Answer, header_value, response};

/// One module: its parts need no imports, so that the page is one file. `viewer.js` says how it is used.
pub(crate) const SCRIPT: &str = concat!(
    include_str!("view/spz.js"),
    include_str!("view/worker.js"),
    include_str!("view/renderer.js"),
    include_str!("view/camera.js"),
    include_str!("view/controls.js"),
    include_str!("view/ruler.js"),
    include_str!("view/frames.js"),
    include_str!("view/viewer.js"),
);
const STYLE: &str = include_str!("view/viewer.css");
const PAGE: &str = include_str!("view/viewer.html");
const NOT_FOUND: &str = include_str!("view/not_found.html");

/// Caches may keep it and must ask whether it is still there.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// The page of a job.
pub(crate) async fn page(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    match public_job(exchange, job_id).await {
        Ok(job) => {
            let id = job.job_id;
            let first =
                exchange.api.quick(move |service| service.public_artifact(id, ArtifactKind::FirstLook));
            let has_first = first.await.is_ok();
            let page = render(&job, has_first, exchange.parts.uri.path());
            html(StatusCode::OK, ResponseBody::Pieces(page))
        }
        Err(error) if error.status == StatusCode::NOT_FOUND => {
            html(StatusCode::NOT_FOUND, ResponseBody::shared(Bytes::from_static(NOT_FOUND.as_bytes())))
        }
        Err(error) => Err(error),
    }
}

/// Where the viewer begins to look: the job's `camera_data`.
pub(crate) async fn camera(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let job = public_job(exchange, job_id).await?;
    json_body::response(StatusCode::OK, &job.camera_data)
}

/// The scene or its preview.
pub(crate) async fn file(exchange: &mut Exchange<'_>, job_id: &str, kind: ArtifactKind) -> Answer {
    let job_id = allowed(exchange, job_id)?;
    let artifact = exchange.api.quick(|service| service.public_artifact(job_id, kind)).await?;
    let sent = download::send(exchange, artifact.key, Some(&artifact.file_name), REVALIDATE).await;
    // It was deleted after it was found.
    sent.map_err(|error| if error.status == StatusCode::NOT_FOUND { ApiError::no_job() } else { error })
}

async fn public_job(exchange: &mut Exchange<'_>, job_id: &str) -> Result<PublicJob, ApiError> {
    let job_id = allowed(exchange, job_id)?;
    exchange.api.quick(|service| service.public_job(job_id)).await
}

/// The id in the path, where there is a viewer at all.
fn allowed(exchange: &mut Exchange<'_>, job_id: &str) -> Result<JobId, ApiError> {
    if !exchange.api.config().public_view {
        return Err(ApiError::no_job());
    }
    exchange.job_id(job_id)
}

/// The page, in pieces: its style and its script are no copies, as everybody may ask for it and nobody take it. Its addresses are
/// relative, so that it works under any address by which a proxy serves it.
fn render(job: &PublicJob, has_first: bool, path: &str) -> VecDeque<Bytes> {
    let base = if path.ends_with('/') { String::new() } else { format!("{}/", job.job_id) };
    let first = if has_first { format!(" data-first=\"{base}first.spz\"") } else { String::new() };
    let title = escape(&job.title);
    // The title comes last, so that nothing in it is replaced.
    let fill = |piece: &str| {
        Bytes::from(
            piece.replace("{{base}}", &base).replace("{{first}}", &first).replace("{{title}}", &title),
        )
    };
    let (head, rest) = PAGE.split_once("{{style}}").unwrap_or((PAGE, ""));
    let (middle, end) = rest.split_once("{{script}}").unwrap_or((rest, ""));
    let (style, script) = (Bytes::from_static(STYLE.as_bytes()), Bytes::from_static(SCRIPT.as_bytes()));
    VecDeque::from([fill(head), style, fill(middle), script, fill(end)])
}

/// Text as HTML, also within quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn html(status: StatusCode, body: ResponseBody) -> Answer {
    let mut response = response(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, header_value(policy())?);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

/// What the page may do: run its own script (which makes a worker of itself) and style, read from this server. Its icon is an
/// empty `data:` address, so that no browser asks for one. Any page may show it in a frame: it knows no user and has nothing that
/// a click could do.
fn policy() -> &'static str {
    static POLICY: OnceLock<String> = OnceLock::new();
    POLICY.get_or_init(|| {
        let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
        format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; worker-src blob:; connect-src 'self'; \
             img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors *",
            hash(SCRIPT),
            hash(STYLE)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(title: &str) -> PublicJob {
        PublicJob { job_id: JobId::random(), title: title.to_owned(), camera_data: Default::default() }
    }

    /// The whole page.
    fn text(job: &PublicJob, has_first: bool, path: &str) -> String {
        let bytes: Vec<u8> = render(job, has_first, path).into_iter().flatten().collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn rule_91_pages_that_nobody_takes_share_what_is_large() {
        let pages: Vec<_> = (0..100).map(|n| render(&job(&format!("{n}")), true, "/view/0b/")).collect();
        for page in &pages {
            assert_eq!(page.len(), 5);
            for (piece, first) in page.iter().zip(&pages[0]) {
                assert!(piece.len() < 1024 || piece.as_ptr() == first.as_ptr(), "{} bytes", piece.len());
            }
        }
    }

    #[test]
    fn rule_72_a_title_is_text() {
        let page = text(&job("<script>alert('1')</script> & {{script}}"), false, "/view/0b/");
        let title = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; {{script}}";
        assert!(page.contains(&format!("<title>{title}</title>")), "{page}");
        assert!(page.contains(&format!("<h1>{title}</h1>")));
        assert_eq!(page.matches("<script").count(), 1);
    }

    #[test]
    fn rule_1_the_addresses_in_the_page_fit_both_slash_forms() {
        let job = job("a");
        let page = text(&job, true, "/view/0b/");
        assert!(page.contains(" data-scene=\"scene.spz\"") && page.contains(" data-first=\"first.spz\""));
        let page = text(&job, true, "/view/0B");
        for (what, file) in [("scene", "scene.spz"), ("first", "first.spz")] {
            assert!(page.contains(&format!(" data-{what}=\"{}/{file}\"", job.job_id)), "{page}");
        }
        assert!(!text(&job, false, "/view/0b/").contains(" data-first="));
    }

    /// The policy has the hash of exactly what stands between the tags, and no part of that looks like the closing tag
    /// to a browser.
    #[test]
    fn the_policy_fits_the_page() {
        let page = text(&job("a"), false, "/view/0b/");
        for (open, close, text) in
            [("<style>", "</style>", STYLE), ("<script type=\"module\">", "</script>", SCRIPT)]
        {
            let (_, rest) = page.split_once(open).unwrap();
            let (inside, _) = rest.split_once(close).unwrap();
            assert!(inside == text && !text.contains("<!--") && !text.contains('\r'), "{open}");
            let hash = STANDARD.encode(Sha256::digest(inside));
            assert!(policy().contains(&format!("'sha256-{hash}'")), "{}", policy());
        }
        assert!(!policy().contains("unsafe") && !policy().contains("http"));
    }
}
