//! To Anthropic's Messages: thinking, limits and how tokens are drawn, which differ by the model's generation.

use serde_json::Number;

use super::super::models::Generation;
use super::super::{Cannot, Conversation, Effort, Knob, Part, Role, ToolChoice};
use super::anthropic::{Held, own};
use super::{Encoding, NO_KNOB};
use crate::limits;

/// From here on (Opus 4.7) thinking is adaptive only, and knobs are refused.
const ADAPTIVE_ONLY: Generation = (4, 7);
/// From here on thinking may be adaptive, and an answer cannot be begun for the model.
pub(super) const ADAPTIVE: Generation = (4, 6);
/// From here on an answer can be held to a schema, and effort can be told.
pub(super) const STRUCTURED: Generation = (4, 5);
/// From here on temperature and `top_p` exclude each other.
const ONE_KNOB: Generation = (4, 1);
/// From here on a model can think.
const THINKS: Generation = (3, 7);

/// From here on a model thinks unless told not to.
const THINKS_BY_ITSELF: Generation = (5, 0);
/// From here on (Opus 5.5, and Fable before it) a model always thinks, and no tool can be forced.
const ALWAYS_THINKS: Generation = (5, 5);

/// What a model is told about thinking.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing.
    Nothing,
    /// Not to.
    Off,
    /// Hardly: it cannot be turned off.
    Hardly,
    /// As much as it likes.
    Adaptive,
    /// Up to so many tokens.
    Budget(u64),
}

/// Whether a model cannot be kept from thinking.
pub(super) fn always_thinks(model: &str, generation: Option<Generation>) -> bool {
    generation.is_some_and(|it| it >= ALWAYS_THINKS || model.contains("fable") || model.contains("mythos"))
}

impl Encoding<'_> {
    /// Thinking and the answer's limit, which includes it; whether the model is told to think.
    pub(super) fn anthropic_thinking(
        &mut self,
        generation: Option<Generation>,
        held: &Held,
    ) -> Result<bool, Cannot> {
        let talk = self.talk;
        let told = self.anthropic_told(generation)?;
        let since = |first| generation.is_some_and(|it| it >= first);
        let mut limit = talk.max_tokens;
        match told {
            Told::Nothing | Told::Hardly => {}
            Told::Off => self.out.member("thinking").raw("{\"type\":\"disabled\"}"),
            Told::Adaptive => {
                self.out.member("thinking").open(b'{');
                self.out.text("type", "adaptive");
                if since(ADAPTIVE_ONLY) {
                    // Without it only a signature comes back.
                    self.out.text("display", "summarized");
                }
                self.out.close(b'}');
            }
            Told::Budget(budget) => {
                self.out.member("thinking").open(b'{');
                self.out.text("type", "enabled");
                self.out.member("budget_tokens").count(budget);
                self.out.close(b'}');
                limit = limit.or(Some(budget.saturating_add(limits::ANTHROPIC_MAX_TOKENS)));
            }
        }
        self.out.member("max_tokens").count(limit.unwrap_or(limits::ANTHROPIC_MAX_TOKENS).max(1));

        let knows = since(ADAPTIVE) || (since(STRUCTURED) && self.terms.model.contains("opus"));
        let effort = match told {
            Told::Hardly => Some(Effort::Low),
            Told::Nothing | Told::Adaptive if knows => talk.thinking.hard(),
            Told::Nothing | Told::Adaptive | Told::Off | Told::Budget(_) => None,
        };
        let word = effort.map(|effort| match effort {
            Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::Higher if since(ADAPTIVE_ONLY) => "xhigh",
            Effort::High | Effort::Higher => "high",
            Effort::Max if since(ADAPTIVE) => "max",
            Effort::Max => "high",
        });
        if word.is_some() || matches!(held, Held::Schema(_)) {
            self.out.member("output_config").open(b'{');
            if let Some(word) = word {
                self.out.text("effort", word);
            }
            if let Held::Schema(schema) = held {
                self.out.member("format").open(b'{');
                self.out.text("type", "json_schema");
                self.out.member("schema").raw(&String::from_utf8_lossy(schema));
                self.out.close(b'}');
            }
            self.out.close(b'}');
        }
        Ok(matches!(told, Told::Adaptive | Told::Budget(_)))
    }

    fn anthropic_told(&mut self, generation: Option<Generation>) -> Result<Told, Cannot> {
        let talk = self.talk;
        let since = |first| generation.is_some_and(|it| it >= first);
        let always = always_thinks(self.terms.model, generation);
        let silent = if since(THINKS_BY_ITSELF) { Told::Off } else { Told::Nothing };
        // A tool that must be called and thinking exclude each other.
        let forced = !always && matches!(talk.choice, ToolChoice::Required | ToolChoice::Named(_));
        if talk.thinking.on != Some(true) {
            return match talk.thinking.on {
                Some(_) if always => {
                    self.lack("thinking", "cannot be turned off at this model")?;
                    Ok(Told::Hardly)
                }
                Some(_) => Ok(silent),
                None if forced => Ok(silent),
                None => Ok(Told::Nothing),
            };
        }
        if generation.is_some() && !since(THINKS) {
            self.lack("thinking", "is nothing for a model that does not think")?;
            return Ok(Told::Nothing);
        }
        if forced {
            self.lack("thinking", "excludes a tool that must be called, at this provider")?;
            return Ok(silent);
        }
        if since(ADAPTIVE) {
            return Ok(Told::Adaptive);
        }
        if loop_without_thought(talk) {
            self.lack("thinking", "must have begun before the tool was called, at this provider")?;
            return Ok(Told::Nothing);
        }
        let wanted = talk.thinking.tokens().max(limits::ANTHROPIC_BUDGET_MIN);
        // Room is left for an answer; where there is none, there is no thinking.
        let room = |limit: u64| limit.saturating_sub((limit / 4).min(limits::ANTHROPIC_MAX_TOKENS));
        let budget = wanted.min(talk.max_tokens.map_or(u64::MAX, room));
        if budget < limits::ANTHROPIC_BUDGET_MIN {
            self.lack("thinking", "does not fit into `max_tokens`")?;
            return Ok(Told::Nothing);
        }
        Ok(Told::Budget(budget))
    }

    pub(super) fn anthropic_sampling(
        &mut self,
        generation: Option<Generation>,
        thinks: bool,
    ) -> Result<(), Cannot> {
        let talk = self.talk;
        let since = |first| generation.is_some_and(|it| it >= first);
        for (knob, number) in &talk.sampling {
            let known = matches!(knob, Knob::Temperature | Knob::TopP | Knob::TopK);
            if !known || since(ADAPTIVE_ONLY) {
                self.lack(knob.name(), NO_KNOB)?;
            } else if thinks {
                self.lack(knob.name(), "excludes thinking, at this provider")?;
            } else if *knob == Knob::TopP && since(ONE_KNOB) && talk.knob(Knob::Temperature).is_some() {
                self.lack(knob.name(), "excludes `temperature`, at this provider")?;
            } else if *knob == Knob::Temperature && number.as_f64().is_some_and(|it| it > 1.0) {
                self.lack(knob.name(), "is at most 1 at this provider")?;
                self.out.member(knob.name()).number(&Number::from(1));
            } else {
                self.out.member(knob.name()).number(number);
            }
        }
        let blank = |stop: &&String| stop.trim().is_empty();
        if talk.stop.iter().any(|stop| blank(&stop)) {
            self.lack("stop", "may not be blank at this provider")?;
        }
        if talk.stop.iter().any(|stop| !blank(&stop)) {
            self.out.member("stop_sequences").strings(talk.stop.iter().filter(|stop| !blank(stop)));
        }
        Ok(())
    }
}

/// Whether the turn that a tool's result continues was not begun with thinking, which a budget demands.
fn loop_without_thought(talk: &Conversation) -> bool {
    let continued =
        talk.turns.iter().rfind(|turn| turn.role != Role::System).is_some_and(|turn| turn.role == Role::Tool);
    let asked = talk.turns.iter().rposition(|turn| turn.role == Role::User).map_or(0, |at| at + 1);
    let first = talk.turns.iter().skip(asked).find(|turn| turn.role == Role::Assistant);
    let thought = first.is_some_and(|turn| matches!(turn.parts.first(), Some(Part::Thought(it)) if own(it)));
    continued && !thought
}
