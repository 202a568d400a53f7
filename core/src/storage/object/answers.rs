//! What a store says in the headers of an answer and the library does not tell, or stumbles over.
//!
//! A client writes some headers of what it sends to the storage's own address, for example the name of its file in an alphabet of
//! its own. The library refuses the whole blob then, since it takes headers for ASCII. So they are taken out of the answer here, and
//! handed on beside it.

use std::future::Future;
use std::pin::Pin;

use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{Extensions, HeaderMap};

/// What the library hands on as text, if it is ASCII.
const TEXTS: [&str; 5] =
    ["cache-control", "content-disposition", "content-encoding", "content-language", "content-type"];
/// What a client may say of its file in its own words, as each store names it.
const OWN_WORDS: [&str; 3] = ["x-amz-meta-", "x-goog-meta-", "x-ms-meta-"];

/// What was said of a blob beside what the library tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The value of `Content-Disposition`.
    pub(super) disposition: Option<String>,
    /// The value of `x-…-meta-filename`.
    pub(super) file_name: Option<String>,
    /// Whether Azure is still copying (`pending`), or how that ended.
    pub(super) copy: Option<String>,
}

impl Said {
    /// What was said in the answer to which these belong.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Takes what it needs out of the headers, and what the library would stumble over.
    fn take_from(headers: &mut HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let said = Self {
            disposition: text("content-disposition"),
            file_name: OWN_WORDS.iter().find_map(|prefix| text(&format!("{prefix}filename"))),
            copy: text("x-ms-copy-status"),
        };
        let is_stumbled_over =
            |name: &str| TEXTS.contains(&name) || OWN_WORDS.iter().any(|prefix| name.starts_with(prefix));
        let bad: Vec<String> = headers
            .iter()
            .filter(|(name, value)| is_stumbled_over(name.as_str()) && value.to_str().is_err())
            .map(|(name, _)| name.as_str().to_owned())
            .collect();
        for name in bad {
            headers.remove(&name);
        }
        said
    }
}

/// Makes connections whose answers say more.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Listener(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Listener(HttpClient);

impl HttpService for Listener {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let mut answer = self.0.execute(request).await?;
            let said = Said::take_from(answer.headers_mut());
            answer.extensions_mut().insert(said);
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use object_store::HeaderValue;

    use super::*;

    #[test]
    fn what_is_not_ascii_is_taken_out_and_told() {
        let mut headers = HeaderMap::new();
        let utf8 = HeaderValue::from_bytes("attachment; filename=\"Küche.mp4\"".as_bytes()).unwrap();
        headers.insert("content-disposition", utf8);
        headers.insert("x-amz-meta-filename", HeaderValue::from_bytes(b"K\xfcche").unwrap());
        headers.insert("x-amz-meta-other", HeaderValue::from_static("plain"));
        headers.insert("etag", HeaderValue::from_static("\"1\""));
        headers.insert("x-ms-copy-status", HeaderValue::from_static("pending"));
        let said = Said::take_from(&mut headers);
        assert_eq!(said.disposition.as_deref(), Some("attachment; filename=\"Küche.mp4\""));
        assert_eq!(said.file_name.as_deref(), Some("K\u{fffd}che"));
        assert_eq!(said.copy.as_deref(), Some("pending"));
        let mut left: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
        left.sort();
        assert_eq!(left, ["etag", "x-amz-meta-other", "x-ms-copy-status"]);
    }
}
