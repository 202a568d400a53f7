//! What a person points at: a place in one picture that shows the object.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::video::Frames;

/// A pixel of a picture that shows the object; as text `X,Y` or `X,Y,FRAME`, for example `812,440,frame_000012.jpg`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectPoint {
    /// Pixels from the left edge of the picture, as its file has it.
    pub x: f64,
    /// Pixels from its upper edge.
    pub y: f64,
    /// Name of the picture, or the number in the name of a video's frame; `None` = the first picture.
    pub frame: Option<String>,
}

impl ObjectPoint {
    /// The place in `names` of the picture that is meant.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is none of that name.
    pub(super) fn picture(&self, names: &[String]) -> Result<usize> {
        let Some(frame) = &self.frame else { return Ok(0) };
        let numbered = frame.parse().ok().map(Frames::name_of);
        names.iter().position(|n| n == frame || Some(n) == numbered.as_ref()).ok_or_else(|| {
            let example = names.first().map_or("none", String::as_str);
            Error::argument(format!("the object is to be at {self}, but there is no picture {frame}"))
                .hint(format!("the first of {} pictures is {example}", names.len()))
        })
    }

    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the point is not in a picture of this size.
    pub(super) fn check_inside(&self, width: u32, height: u32) -> Result<()> {
        let inside = (0.0..f64::from(width)).contains(&self.x) && (0.0..f64::from(height)).contains(&self.y);
        let message =
            || format!("the object is to be at {self}, but the picture has {width}x{height} pixels");
        if inside { Ok(()) } else { Err(Error::argument(message())) }
    }
}

impl fmt::Display for ObjectPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.x, self.y)?;
        self.frame.as_ref().map_or(Ok(()), |frame| write!(f, ",{frame}"))
    }
}

impl FromStr for ObjectPoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::argument(format!("the place of the object is X,Y or X,Y,FRAME in pixels, not {text:?}"))
        };
        let mut parts = text.splitn(3, ',').map(str::trim);
        let mut number = || -> Result<f64> {
            let value: f64 = parts.next().and_then(|p| p.parse().ok()).ok_or_else(wrong)?;
            if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(wrong()) }
        };
        let (x, y) = (number()?, number()?);
        let frame = parts.next().map(str::to_owned);
        if frame.as_ref().is_some_and(String::is_empty) { Err(wrong()) } else { Ok(Self { x, y, frame }) }
    }
}

impl TryFrom<String> for ObjectPoint {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ObjectPoint> for String {
    fn from(point: ObjectPoint) -> Self {
        point.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["812,440", "0,0.5", "812,440,frame_000012.jpg", "3,4,12", "3,4,a, b.png"] {
            let point: ObjectPoint = text.parse().unwrap();
            assert_eq!(point.to_string(), text);
            assert_eq!(
                serde_json::from_str::<ObjectPoint>(&serde_json::to_string(&point).unwrap()).unwrap(),
                point
            );
        }
        for text in ["", "3", "3,x", "-1,4", "3,4,", "nan,1", "1,inf"] {
            let error = text.parse::<ObjectPoint>().unwrap_err();
            assert!(error.message().contains("X,Y"), "{text}: {error}");
        }
    }

    #[test]
    fn the_picture_is_known_by_name_or_number() {
        let names: Vec<String> = ["frame_000003.jpg", "frame_000012.jpg"].map(String::from).into();
        let picture = |text: &str| text.parse::<ObjectPoint>().unwrap().picture(&names);
        assert_eq!(picture("1,2").unwrap(), 0);
        assert_eq!((picture("1,2,12").unwrap(), picture("1,2,frame_000012.jpg").unwrap()), (1, 1));
        let error = picture("1,2,13").unwrap_err();
        assert!(error.message().contains("no picture 13") && error.to_string().contains("1,2,13"), "{error}");
        let point: ObjectPoint = "100,20".parse().unwrap();
        assert!(point.check_inside(101, 21).is_ok());
        assert!(point.check_inside(100, 21).unwrap_err().message().contains("100x21"));
    }
}
