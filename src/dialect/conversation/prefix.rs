//! A conversation whose answer broke off, for a target that is to go on with it.

use super::{Conversation, Format, Part, Role, Turn};

/// What a target is asked that cannot be given the beginning of its own answer.
const GO_ON: &str = "Your last message was cut off by a lost connection. Go on exactly where it stops, with the very next \
                     character, so that both parts read as one text. Repeat nothing of it, say nothing about the \
                     interruption, and add no introduction.";

impl Conversation {
    /// Why its answer cannot be gone on with by another target; `None`: it can.
    #[must_use]
    pub fn cannot_go_on(&self) -> Option<&'static str> {
        if self.choices > 1 {
            Some("several choices were asked for")
        } else if self.logprobs.is_some() {
            Some("log-probabilities were asked for")
        } else if self.format != Format::Text {
            Some("JSON was asked for")
        } else if self.tools.iter().any(|tool| tool.hosted.is_some()) {
            Some("a tool of its provider was offered")
        } else {
            self.bound
        }
    }

    /// The same, with the beginning of its answer, of about so many tokens. `prefilled`: the target takes that as its own
    /// words, and does not think; else it is asked to go on.
    ///
    /// Blanks at the end are left out: with most tokenizers the next word brings its own.
    #[must_use]
    pub fn going_on(mut self, said: &str, tokens: u64, prefilled: bool) -> Conversation {
        let said = said.trim_end();
        match self.turns.last_mut() {
            // The client has begun the answer itself.
            Some(Turn { role: Role::Assistant, parts }) => match parts.last_mut() {
                Some(Part::Text(begun)) => begun.push_str(said),
                _ => parts.push(Part::Text(said.to_owned())),
            },
            _ => self.turns.push(Turn { role: Role::Assistant, parts: vec![Part::Text(said.to_owned())] }),
        }
        if !prefilled {
            self.turns.push(Turn { role: Role::User, parts: vec![Part::Text(GO_ON.to_owned())] });
        }
        self.max_tokens = self.max_tokens.map(|most| most.saturating_sub(tokens).max(1));
        if prefilled {
            // llama.cpp refuses both together. Where words ask for it, thinking is only not passed on: many models refuse
            // to be told that they shall not.
            self.thinking = super::Thinking { on: Some(false), ..super::Thinking::default() };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;

    fn asked(more: &str) -> Conversation {
        let body = format!(
            "{{\"model\":\"m\",\"max_tokens\":50,\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}{more}]}}"
        );
        super::super::decode(Dialect::Anthropic, body.as_bytes()).unwrap()
    }

    fn last(talk: &Conversation, back: usize) -> (Role, &str) {
        let turn = &talk.turns[talk.turns.len() - back];
        match turn.parts.as_slice() {
            [Part::Text(text)] => (turn.role, text),
            parts => panic!("{parts:?}"),
        }
    }

    #[test]
    fn what_was_said_is_the_assistants_and_what_is_left_is_less() {
        let prefilled = asked("").going_on("The fox \n", 20, true);
        assert_eq!(last(&prefilled, 1), (Role::Assistant, "The fox"));
        assert_eq!((prefilled.max_tokens, prefilled.thinking.on), (Some(30), Some(false)));
        let in_words = asked("").going_on("The fox", 99, false);
        assert_eq!(last(&in_words, 2), (Role::Assistant, "The fox"));
        assert_eq!(last(&in_words, 1), (Role::User, GO_ON));
        assert_eq!((in_words.max_tokens, in_words.thinking.on), (Some(1), None));
    }

    #[test]
    fn a_beginning_of_the_clients_own_is_one_text_with_it() {
        let begun = asked(",{\"role\":\"assistant\",\"content\":\"Once\"}").going_on(" upon a", 1, true);
        assert_eq!((begun.turns.len(), last(&begun, 1)), (2, (Role::Assistant, "Once upon a")));
    }
}
