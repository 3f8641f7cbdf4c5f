//! The morning line: once a day, what was asked since the last one and what became of it. Its fixed `MESSAGE_ID`.

use tracing::info;

use super::history::Sum;

/// `morning`: a day's requests, how many of them a cloud answered and why, deaths, what was lost and spent.
pub const MORNING: &str = "c41d8f0e5a7b4c3f9e26d0b81a95f374";

/// `since`: in words; `spent`: as people write money.
pub fn morning(since: &str, sum: &Sum, spent: &str) {
    let list = |items: &mut dyn Iterator<Item = (&'static str, u64)>| {
        items.map(|(name, count)| format!("{name}:{count}")).collect::<Vec<_>>().join(",")
    };
    let why = list(&mut sum.why());
    let causes = list(&mut sum.causes().map(|(cause, count)| (cause.as_str(), count)));
    let deaths = list(&mut sum.deaths().map(|(cause, count)| (cause.as_str(), count)));
    let some = |list: &'_ String| (!list.is_empty()).then(|| list.clone());
    info!(
        target: super::ALWAYS,
        message_id = MORNING,
        edgeward_event = "morning",
        edgeward_since = since,
        edgeward_requests = sum.requests,
        edgeward_cloud = sum.cloud(),
        edgeward_why = some(&why),
        edgeward_causes = some(&causes),
        edgeward_deaths = some(&deaths),
        edgeward_lost = sum.lost,
        edgeward_spent = spent,
        "Since {since}: {}",
        sum.in_words(spent)
    );
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::history::{Away, Ended, History};
    use super::super::line::tests::lines;
    use super::*;
    use crate::cause::Cause;

    #[test]
    fn a_day_is_one_line() {
        let start = crate::time::now();
        let mut history = History::new(start, 0);
        let cloud = |away, cause| Ended { cloud: Some((away, cause)), lost: false };
        history.request(cloud(Some(Away::Busy), None), start);
        history.request(cloud(None, Some(Cause::Crashed)), start);
        history.died(Cause::Crashed, start);
        history.spent(10_000, start);
        let at = start + Duration::from_secs(24 * 3600);
        let shown = lines(|| {
            morning("2026-12-01 07:00", &history.morning(at), "0.01");
            morning("2026-12-02 07:00", &history.morning(at), "0.00");
        });
        assert!(
            shown[0].ends_with(
                "INFO  morning since=\"2026-12-01 07:00\" requests=2 cloud=2 why=busy:1,dead:1 causes=crashed:1 \
                 deaths=crashed:1 lost=0 spent=0.01\n"
            ),
            "{}",
            shown[0]
        );
        assert!(shown[1].ends_with("requests=0 cloud=0 lost=0 spent=0.00\n"), "{}", shown[1]);
    }
}
