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

impl Encoding<'_> {
    /// Thinking and the answer's limit, which includes it; whether the model is told to think.
    pub(super) fn anthropic_thinking(
        &mut self,
        generation: Option<Generation>,
        held: &Held,
    ) -> Result<bool, Cannot> {
        let talk = self.talk;
        let since = |first| generation.is_none_or(|it| it >= first);
        let claude = generation.is_some();
        let mut on = talk.thinking.on == Some(true);
        if on && !since(THINKS) {
            self.lack("thinking", "is nothing for a model that does not think")?;
            on = false;
        }
        if on && matches!(talk.choice, ToolChoice::Required | ToolChoice::Named(_)) {
            self.lack("thinking", "excludes a tool that must be called, at this provider")?;
            on = false;
        }
        let adaptive = claude && since(ADAPTIVE);
        if on && !adaptive && loop_without_thought(talk) {
            self.lack("thinking", "must have begun before the tool was called, at this provider")?;
            on = false;
        }
        let mut limit = talk.max_tokens;
        if on && adaptive {
            self.out.member("thinking").open(b'{');
            self.out.text("type", "adaptive");
            if since(ADAPTIVE_ONLY) {
                // Without it only a signature comes back.
                self.out.text("display", "summarized");
            }
            self.out.close(b'}');
        } else if on {
            let wanted = talk.thinking.tokens().max(limits::ANTHROPIC_BUDGET_MIN);
            // Room is left for an answer; where there is none, there is no thinking.
            let room = limit.map_or(u64::MAX, |limit| {
                limit.saturating_sub((limit / 4).min(limits::ANTHROPIC_MAX_TOKENS))
            });
            let budget = wanted.min(room);
            if budget < limits::ANTHROPIC_BUDGET_MIN {
                self.lack("thinking", "does not fit into `max_tokens`")?;
                on = false;
            } else {
                self.out.member("thinking").open(b'{');
                self.out.text("type", "enabled");
                self.out.member("budget_tokens").count(budget);
                self.out.close(b'}');
                limit = limit.or(Some(budget.saturating_add(limits::ANTHROPIC_MAX_TOKENS)));
            }
        } else if talk.thinking.on == Some(false) && claude && since(THINKS) {
            self.out.member("thinking").raw("{\"type\":\"disabled\"}");
        }
        self.out.member("max_tokens").count(limit.unwrap_or(limits::ANTHROPIC_MAX_TOKENS).max(1));

        let effort = talk.thinking.hard().filter(|_| claude && since(STRUCTURED));
        let effort = effort.filter(|_| adaptive || talk.thinking.on.is_none());
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
        Ok(on)
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
