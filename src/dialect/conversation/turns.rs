//! Turns as they come in, each tool's result beside its call.

use std::collections::HashMap;

use super::json::At;
use super::words::short;
use super::{Call, Outcome, Part, Role, Turn};
use crate::dialect::request::BadRequest;
use crate::limits;

/// What stands for the result of a call of which the client says nothing, where its dialect allows that.
const NO_RESULT: &str = "(no result)";

/// A conversation so far.
#[derive(Default)]
pub(super) struct Turns {
    turns: Vec<Turn>,
    /// Calls of the last assistant's turn that have no result yet: the client's id, the call's own, its tool.
    open: Vec<(String, String, String)>,
    /// Ids in use, and how often the client used them.
    ids: HashMap<String, u32>,
    /// Instructions that stand between a call and its result: they wait for it.
    held: Vec<Turn>,
    /// A call without a result is no fault.
    lenient: bool,
}

impl Turns {
    pub(super) fn new(lenient: bool) -> Self {
        Turns { lenient, ..Turns::default() }
    }

    /// A whole message, but for tools' results.
    pub(super) fn say(&mut self, at: &At<'_>, role: Role, parts: Vec<Part>) -> Result<(), BadRequest> {
        if role == Role::System && parts.iter().any(|part| !matches!(part, Part::Text(_))) {
            return Err(at.bad("instructions are words alone"));
        }
        let own = |part: &Part| matches!(part, Part::Call(_) | Part::Thought(_));
        if role == Role::User && parts.iter().any(own) {
            return Err(at.bad("only the assistant thinks and calls tools"));
        }
        if role == Role::System && !self.open.is_empty() {
            self.held.push(Turn { role, parts });
            return Ok(());
        }
        self.settle(at)?;
        self.turns.push(Turn { role, parts: Vec::new() });
        self.take(at, parts)
    }

    /// A piece of the assistant's turn, which goes on until somebody else speaks.
    pub(super) fn go_on(&mut self, at: &At<'_>, parts: Vec<Part>) -> Result<(), BadRequest> {
        if self.turns.last().is_some_and(|turn| turn.role == Role::Assistant) {
            return self.take(at, parts);
        }
        self.say(at, Role::Assistant, parts)
    }

    /// What came of a call: found by its id, else by its tool's name, else the first that is open.
    pub(super) fn result(
        &mut self,
        at: &At<'_>,
        id: Option<&str>,
        name: Option<&str>,
        parts: Vec<Part>,
        error: bool,
    ) -> Result<(), BadRequest> {
        let found = self.open.iter().position(|(client, _, tool)| match (id, name) {
            (Some(id), _) => client == id,
            (None, Some(name)) => tool == name,
            (None, None) => true,
        });
        // Ollama's own libraries leave ids out of calls, and some clients give them with results all the same.
        let nameless = |(client, _, tool): &(String, String, String)| {
            client.is_empty() && name.is_none_or(|name| tool == name)
        };
        let found = found.or_else(|| self.open.iter().position(nameless).filter(|_| self.lenient));
        let Some(found) = found else {
            let whose = match id.or(name) {
                Some(whose) => format!("the tool's result for `{}`", short(whose)),
                None => "the tool's result".to_owned(),
            };
            return Err(at.bad(format_args!(
                "{whose} answers no open call of the message before: send each call together with its result"
            )));
        };
        let (_, id, name) = self.open.remove(found);
        self.outcome(Outcome { id, name, parts, error });
        if self.open.is_empty() {
            self.turns.append(&mut self.held);
        }
        Ok(())
    }

    /// All of it.
    pub(super) fn end(mut self, at: &At<'_>) -> Result<Vec<Turn>, BadRequest> {
        self.settle(at)?;
        Ok(self.turns)
    }

    /// Nobody goes on before each call has its result.
    fn settle(&mut self, at: &At<'_>) -> Result<(), BadRequest> {
        let Some((client, _, name)) = self.open.first() else { return Ok(()) };
        if !self.lenient {
            let what = format_args!(
                "before this, the call `{}` of the tool `{}` needs its result",
                short(client),
                short(name)
            );
            return Err(at.bad(what));
        }
        for (_, id, name) in std::mem::take(&mut self.open) {
            let parts = vec![Part::Text(NO_RESULT.to_owned())];
            self.outcome(Outcome { id, name, parts, error: true });
        }
        self.turns.append(&mut self.held);
        Ok(())
    }

    fn outcome(&mut self, outcome: Outcome) {
        match self.turns.last_mut() {
            Some(turn) if turn.role == Role::Tool => turn.parts.push(Part::Result(outcome)),
            _ => self.turns.push(Turn { role: Role::Tool, parts: vec![Part::Result(outcome)] }),
        }
    }

    /// Into the last turn.
    fn take(&mut self, at: &At<'_>, mut parts: Vec<Part>) -> Result<(), BadRequest> {
        for part in &mut parts {
            if let Part::Call(call) = part {
                self.call(call);
            }
        }
        if self.open.len() > limits::CALLS_MAX {
            return Err(at.bad(format_args!("more than {} calls at once", limits::CALLS_MAX)));
        }
        if let Some(turn) = self.turns.last_mut() {
            turn.parts.append(&mut parts);
        }
        Ok(())
    }

    /// Gives a call an id that no other has: small servers count anew in each answer, Ollama gives none.
    fn call(&mut self, call: &mut Call) {
        let client = call.id.clone();
        if call.id.is_empty() {
            call.id = format!("call_{}_{}", self.turns.len(), self.open.len());
        }
        let base = call.id.clone();
        while self.ids.contains_key(&call.id) {
            let used = self.ids.entry(base.clone()).or_default();
            *used += 1;
            call.id = format!("{base}_{}", *used);
        }
        self.ids.insert(call.id.clone(), 1);
        self.open.push((client, call.id.clone(), call.name.clone()));
    }
}
