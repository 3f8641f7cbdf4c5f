//! All that the watchdog's state holds, number by number in a fixed order: a trace begins with it, so that a replay knows
//! what the recorded one knew.

/// Is given a number as it is, and gives it as it is to be.
pub(super) type Each<'a> = dyn FnMut(u64) -> u64 + 'a;

/// Stands for `None`.
const NONE: u64 = 1 << 32;

/// A number of 32 bits.
pub(super) fn small(number: &mut u32, each: &mut Each<'_>) {
    *number = u32::try_from(each((*number).into())).unwrap_or(u32::MAX);
}

/// One that may be missing.
pub(super) fn maybe(number: &mut Option<u32>, each: &mut Each<'_>) {
    *number = u32::try_from(each(number.map_or(NONE, u64::from))).ok();
}

/// Several that are there or missing together: the first says it.
pub(super) fn together<const N: usize>(numbers: Option<[u64; N]>, each: &mut Each<'_>) -> Option<[u64; N]> {
    let there = each(numbers.is_some().into()) != 0;
    let numbers = numbers.unwrap_or([0; N]).map(each);
    there.then_some(numbers)
}
