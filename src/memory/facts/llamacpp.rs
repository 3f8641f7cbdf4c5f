//! llama.cpp's server, and what vLLM has of the same: `/props`, `/slots`, `/v1/models` (`tools/server/README.md`).

use super::{Facts, Resident, bounded, name, number, push};
use crate::memory::need::kib;
use crate::wire::json::{Cursor, Stop, key_is};

/// What llama.cpp makes where it is not told how many slots (`n_parallel is set to auto`), and has share one cache.
const SLOTS_BY_ITSELF: u32 = 4;

/// Tokens in all of the cache. Whether slots share it the server does not say: each says its whole context then. Told
/// how many, they do not; by itself, they do.
fn cache_tokens(slots: u32, context: Option<u32>) -> Option<u64> {
    let shares = if slots == SLOTS_BY_ITSELF { 1 } else { slots };
    context.filter(|context| *context > 0).map(|context| u64::from(context) * u64::from(shares))
}

/// `GET /props`: slots, and their context. Whether it has that form.
pub fn llamacpp_props(body: &[u8], facts: &mut Facts) -> bool {
    let (mut slots, mut context) = (0, None);
    let whole = bounded(body).object(|key, at| {
        if key_is(key, "total_slots") {
            slots = number(at)?.unwrap_or(0);
        } else if key_is(key, "default_generation_settings") {
            at.object(|key, at| {
                if key_is(key, "n_ctx") {
                    context = number(at)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    });
    let good = whole.is_ok() && slots > 0;
    if good {
        facts.slots = Some(slots);
        facts.cache_tokens = cache_tokens(slots, context);
    }
    good
}

/// `GET /slots`: how many, how many are taken, what they have computed. Whether it has that form.
pub fn llamacpp_slots(body: &[u8], facts: &mut Facts) -> bool {
    let (mut slots, mut busy, mut context, mut work) = (0_u32, 0, None, 0_u64);
    let whole = bounded(body).array(|at| {
        at.object(|key, at| {
            if key_is(key, "is_processing") {
                slots += 1;
                busy += u32::from(at.is_true()?);
            } else if key_is(key, "n_ctx") {
                context = number(at)?;
            } else if key_is(key, "n_prompt_tokens_processed") {
                work = work.saturating_add(at.number()?.unwrap_or(0));
            } else if key_is(key, "next_token") {
                work = work.saturating_add(decoded(at)?);
            }
            Ok(())
        })
        .map(|_| ())
    });
    let good = whole == Ok(true) && slots > 0;
    if good {
        (facts.slots, facts.busy, facts.work) = (Some(slots), Some(busy), Some(work));
        facts.cache_tokens = cache_tokens(slots, context);
    }
    good
}

/// A slot's `next_token`: tokens of its answer. An object in older releases, an array of one in newer ones.
fn decoded(at: &mut Cursor<'_>) -> Result<u64, Stop> {
    let mut sum = 0_u64;
    let mut one = |at: &mut Cursor<'_>| {
        at.object(|key, at| {
            if key_is(key, "n_decoded") {
                sum = sum.saturating_add(at.number()?.unwrap_or(0));
            }
            Ok(())
        })
        .map(|_| ())
    };
    if at.peek()? == b'[' {
        at.array(one)?;
    } else {
        one(at)?;
    }
    Ok(sum)
}

/// `GET /v1/models`: what is loaded, with what context. Of llama.cpp's router, which lists models that are not: those
/// whose `status` is `loaded`. Whether it has that form.
pub fn openai_models(body: &[u8], facts: &mut Facts) -> bool {
    let (mut list, mut found, mut router) = (Vec::new(), false, false);
    let whole = bounded(body).object(|key, at| {
        if key_is(key, "data") {
            found = at.array(|at| {
                let (model, loaded) = model(at)?;
                router |= loaded.is_some();
                if loaded != Some(false) {
                    push(&mut list, model);
                }
                Ok(())
            })?;
        }
        Ok(())
    });
    let good = whole.is_ok() && found;
    if good {
        facts.resident = Some(list);
        facts.router = router;
    }
    good
}

fn model(at: &mut Cursor<'_>) -> Result<(Resident, Option<bool>), Stop> {
    let (mut model, mut loaded) = (Resident::default(), None);
    at.object(|key, at| {
        if key_is(key, "id") {
            model.name = name(at)?.unwrap_or_default();
        } else if key_is(key, "max_model_len") {
            model.context = number(at)?;
        } else if key_is(key, "meta") {
            at.object(|key, at| {
                if key_is(key, "size") {
                    model.size = kib(at.number()?.unwrap_or(0));
                } else if key_is(key, "n_ctx") {
                    model.context = number(at)?;
                }
                Ok(())
            })?;
        } else if key_is(key, "status") {
            at.object(|key, at| {
                if key_is(key, "value") {
                    loaded = at.string()?.map(|value| value.is(b"loaded"));
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok((model, loaded))
}
