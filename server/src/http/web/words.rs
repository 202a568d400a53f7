//! How figures and times are told to people.

use libreconstruct::job::Timestamp;

/// `2026-01-31 12:00 UTC`.
pub(super) fn time(time: Timestamp) -> String {
    let text = time.to_string();
    let minute = text.get(..16).unwrap_or(&text);
    format!("{} UTC", minute.replace('T', " "))
}

/// `1.5 GB`.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} bytes");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

/// `1 h 05 min`, `12 min`, `48 s`.
pub(super) fn duration(from: Timestamp, until: Timestamp) -> String {
    let seconds = (until.as_micros() - from.as_micros()).max(0) / 1_000_000;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes:02} min"),
    }
}

/// The name of a browser and its system, as far as they can be told from what it calls itself.
pub(super) fn browser(agent: &str) -> String {
    let first = |names: &[(&str, &'static str)]| {
        names.iter().find(|(mark, _)| agent.contains(mark)).map(|(_, name)| *name)
    };
    // Most say that they are others, too: the particular before the general.
    let program = first(&[
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("CriOS/", "Chrome"),
        ("Safari/", "Safari"),
    ]);
    let system = first(&[
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("Linux", "Linux"),
    ]);
    match (program, system) {
        (Some(program), Some(system)) => format!("{program} on {system}"),
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (None, None) if agent.trim().is_empty() => "A browser without a name".to_owned(),
        (None, None) => agent.chars().take(40).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (count, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (5 << 30, "5.4 GB"),
            (u64::MAX, "18446.7 PB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(time(Timestamp::from_micros(0)), "1970-01-01 00:00 UTC");
    }

    #[test]
    fn durations_are_short() {
        let words = |seconds: i64| {
            duration(
                Timestamp::from_micros(5_000_000),
                Timestamp::from_micros(5_000_000 + seconds * 1_000_000),
            )
        };
        for (seconds, text) in
            [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3900, "1 h 05 min")]
        {
            assert_eq!(words(seconds), text);
        }
    }

    #[test]
    fn browsers_are_known_by_their_names() {
        for (agent, name) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
            (
                "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36",
                "Chrome on Windows",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1",
                "Safari on iPhone",
            ),
            ("curl/8.0", "curl/8.0"),
            (" ", "A browser without a name"),
        ] {
            assert_eq!(browser(agent), name);
        }
    }
}
