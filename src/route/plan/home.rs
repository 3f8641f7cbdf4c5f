//! Who is nearer: where a conversation goes home to, and who is waited for before the prompt goes farther away.

use std::time::{Duration, Instant};

use super::{Rank, Seat};
use crate::config::{After, Config, Place};
use crate::memory::admit::Admission;
use crate::route::State;

/// All of a weight, in thousandths.
const WHOLE: u16 = 1000;

/// Where a conversation stays, and since when it was silent there. It goes home from a fallback once its home is well, and
/// costs less than that: one conversation at a time.
pub(super) fn stays(
    config: &Config,
    state: &mut State,
    key: u64,
    seats: &[Seat],
    home: &[usize],
    now: Instant,
) -> Option<(usize, Instant)> {
    let stay = state.sticky(key, now)?;
    let well = |seat: &&Seat| {
        seat.rank == Rank::Fit && (!seat.trial || seat.half_open) && home.contains(&seat.target())
    };
    let returns = seats.iter().filter(well).find(|seat| {
        let (began, place) = (stay.began == Some(seat.target()), place_of(config, seat.target()));
        let back = seat.back_since.is_none() && seat.share >= WHOLE && !seat.half_open;
        if stay.away && stay.again {
            false
        } else if stay.away {
            // A cloud at home costs as much as the one where it is.
            let nearer = place < place_of(config, stay.target);
            // Where only conversations come, one of them must be the trial that shows whether it is well.
            place != Some(Place::Cloud) && (began || (nearer && (back || seat.half_open)))
        } else {
            // Its server was away meanwhile, and those from before would flood it.
            stay.target == seat.target() && seat.back_since.is_some_and(|since| stay.last < since)
        }
    });
    match returns {
        Some(seat) if state.comes_home(key, seat.half_open, now) => Some((seat.target(), now)),
        Some(_) | None => Some((stay.target, stay.last)),
    }
}

/// Who is waited for, and for how long: nearer than the one who would be asked first, or asked first itself, so that it is
/// known what becomes of the request if it is not free any more. `stays`: where the conversation is.
pub(super) fn awaited(
    config: &Config,
    seats: &[Seat],
    full: &[Seat],
    stays: Option<usize>,
) -> Option<(Seat, After)> {
    let first = seats.first().filter(|first| first.rank < Rank::Cold)?;
    let after = |seat: &Seat, other: &Seat| {
        let (near, far) = (place_of(config, seat.target())?, place_of(config, other.target())?);
        let earlier = seat.tier() < other.tier();
        match (near, far) {
            _ if seat.tier() > other.tier() => None,
            (Place::Local, Place::Lan) => Some(config.elsewhere.lan),
            (Place::Lan, Place::Lan) if earlier => Some(config.elsewhere.lan),
            (Place::Local | Place::Lan, Place::Cloud) => Some(config.elsewhere.cloud),
            _ => None,
        }
    };
    // Who fails its probe is not well only because it is busy, too.
    let well = |seat: &Seat| matches!(seat.standing, Rank::Fit | Rank::Short);
    let short = |seat: &Seat| matches!(seat.rank, Rank::Cold | Rank::Short);
    let cold = |seat: &&Seat| well(seat) && short(seat) && seat.memory != Admission::Goes;
    let busy = full.iter().filter(|seat| seat.rank == Rank::Fit || cold(seat));
    let waiting = seats.iter().filter(cold).chain(busy).min_by_key(|seat| seat.place);
    let waiting = waiting.filter(|seat| seat.tier() <= first.tier() && stays != Some(first.target()));
    if let Some((seat, after)) = waiting.and_then(|seat| Some((seat, after(seat, first)?))) {
        // One that has failed lately gets no more than its share.
        let whole = seat.share >= WHOLE && !seat.trial && seat.back_since.is_none();
        return Some((*seat, if whole { after } else { After::Time(Duration::ZERO) }));
    }
    let other = seats.get(1).filter(|other| other.rank < Rank::Cold)?;
    Some((*first, after(first, other)?)).filter(|_| first.rank == Rank::Fit)
}

fn place_of(config: &Config, target: usize) -> Option<Place> {
    config.targets.get(target).map(|target| target.place)
}
