//! Which `[[route]]` a request takes, and how far its prompt may go.

use http::{HeaderMap, HeaderName};

use super::Ask;
use crate::config::{Egress, Hours, Place, Route};

/// The header by which a client keeps its prompt on this box (`true`) or on the LAN (`lan`).
pub const LOCAL_ONLY: HeaderName = HeaderName::from_static("x-edgeward-local-only");
/// The header by which a client names the conversation that a request belongs to.
pub const SESSION: HeaderName = HeaderName::from_static("x-edgeward-session");

/// How far the client itself lets this prompt go.
///
/// # Errors
/// A value that is neither: it wanted to keep something in, and cannot be left to think that it did.
pub fn egress_asked(headers: &HeaderMap) -> Result<Egress, String> {
    let mut strictest = Egress::Anywhere;
    for value in headers.get_all(LOCAL_ONLY) {
        let value = value.as_bytes().trim_ascii();
        strictest = strictest.max(if value.eq_ignore_ascii_case(b"true") {
            Egress::Box
        } else if value.eq_ignore_ascii_case(b"lan") {
            Egress::Lan
        } else {
            return Err(format!(
                "the header `{LOCAL_ONLY}` must be `true` (this prompt stays on this box) or `lan` (it stays on the LAN); \
                 leave it out to let it go where this edgeward's configuration allows"
            ));
        });
    }
    Ok(strictest)
}

/// Whether a prompt that may go as far as `egress` may go to a target in `place`.
#[must_use]
pub const fn may_go(egress: Egress, place: Place) -> bool {
    match egress {
        Egress::Anywhere => true,
        Egress::Lan => matches!(place, Place::Local | Place::Lan),
        Egress::Box => matches!(place, Place::Local),
    }
}

/// Whether the route is for this request: by its model, and each of its headers, and its client's key, and the hour.
pub(super) fn applies(route: &Route, ask: &Ask<'_>) -> bool {
    let header = |(name, pattern): &(String, String)| {
        ask.headers.get_all(name.as_str()).iter().any(|value| matches(pattern, value.as_bytes()))
    };
    route.matches(&ask.call.model)
        && route.headers.iter().all(header)
        && (route.keys.is_empty()
            || ask.client.is_some_and(|client| route.keys.iter().any(|key| key == client)))
        && route.hours.is_none_or(|hours| within(hours, ask.minute))
}

/// Exact, or a beginning where the pattern ends with `*`.
fn matches(pattern: &str, value: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => value.starts_with(beginning.as_bytes()),
        None => value == pattern.as_bytes(),
    }
}

fn within(hours: Hours, minute: u16) -> bool {
    let (from, to) = (hours.from, hours.to);
    match from.cmp(&to) {
        std::cmp::Ordering::Less => (from..to).contains(&minute),
        std::cmp::Ordering::Equal => true,
        std::cmp::Ordering::Greater => minute >= from || minute < to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (LOCAL_ONLY, HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_client_that_wants_its_prompt_kept_in_is_understood_or_refused() {
        for (values, want) in [
            (&[][..], Ok(Egress::Anywhere)),
            (&["true"], Ok(Egress::Box)),
            (&[" True "], Ok(Egress::Box)),
            (&["lan"], Ok(Egress::Lan)),
            (&["true", "lan"], Ok(Egress::Box)),
            (&["lan", "true"], Ok(Egress::Box)),
            (&["false"], Err(())),
            (&[""], Err(())),
            (&["lan", "yes"], Err(())),
        ] {
            assert_eq!(egress_asked(&headers(values)).map_err(|_| ()), want, "{values:?}");
        }
        assert!(
            egress_asked(&headers(&["1"])).unwrap_err().contains("`x-edgeward-local-only` must be `true`")
        );
    }

    #[test]
    fn hours_may_run_over_midnight() {
        let within = |from, to, minute| within(Hours { from, to }, minute);
        for (from, to, minute, want) in [
            (540, 1020, 539, false),
            (540, 1020, 540, true),
            (540, 1020, 1019, true),
            (540, 1020, 1020, false),
            (1320, 360, 1319, false),
            (1320, 360, 1320, true),
            (1320, 360, 1439, true),
            (1320, 360, 0, true),
            (1320, 360, 359, true),
            (1320, 360, 360, false),
            (60, 60, 60, true),
            (60, 60, 59, true),
        ] {
            assert_eq!(within(from, to, minute), want, "{from} {to} {minute}");
        }
    }
}
