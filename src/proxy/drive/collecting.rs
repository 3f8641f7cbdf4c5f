//! A stream of which the whole answer is put together, for a client that asked for no stream. It commits at its end:
//! until then a death, an error or a cut leads to another target.

use std::rc::Rc;

use bytes::Bytes;

use super::{Driver, Stage};
use crate::cause::{Cause, Failure};
use crate::dialect::collect::Collector;
use crate::limits::{self, COLLECT_STEP_BYTES};
use crate::observe::Limit;
use crate::proxy::body::Reserved;
use crate::proxy::exchange::{Action, Event};
use crate::route::Delivery;
use crate::time::now;

/// What was reserved for an answer in the making, of the memory for request bodies. It grows by doubling, so that a
/// short answer, as most are, holds little.
#[derive(Debug, Default)]
pub(super) struct Memory {
    reserved: Option<Reserved>,
    bytes: usize,
}

impl Driver {
    pub(super) async fn collect(
        &mut self,
        mut collector: Box<Collector>,
        mut memory: Memory,
        chunk: Option<Result<Bytes, Failure>>,
    ) -> Action {
        let (answering, processed) =
            (collector.is_answering(), collector.progress().map(|progress| progress.processed));
        match chunk {
            Some(Ok(chunk)) => {
                if let Err(failure) = collector.push(&chunk) {
                    return self.uncollected(failure).await;
                }
            }
            Some(Err(failure)) if !collector.is_whole() => return self.failed(failure),
            Some(Err(_)) | None => return self.collected(*collector),
        }
        if collector.is_done() && !collector.is_answering() {
            // An empty answer, to which nothing more comes.
            return self.collected(*collector);
        }
        if let Some(action) = self.hold(&mut memory, collector.bytes()).await {
            return action;
        }
        let at = now();
        let mut action = Action::Read;
        if collector.is_answering() && !answering {
            self.account.spoke(self.target(), at);
            action = self.pace.exchange.on(Event::Answering, at);
        } else if collector.progress().map(|progress| progress.processed) > processed {
            action = self.pace.exchange.on(Event::Progress, at);
        }
        if collector.is_answering() && collector.take_moved() {
            self.account.token(false, at);
            let (finished, done) = (collector.is_whole(), collector.is_done());
            action = self.pace.exchange.on(Event::Moved { spoke: true, finished, done }, at);
        }
        self.attempt.stage = Stage::Collecting(collector, memory);
        action
    }

    /// What came is no stream that can be put together: its server is asked once more, for the whole answer.
    async fn uncollected(&mut self, failure: Failure) -> Action {
        if failure.cause != Cause::Protocol || self.delivery() != Delivery::Collected {
            return self.failed(failure);
        }
        self.attempt.reply = None;
        self.asks_anew_whole().await
    }

    /// Nothing more comes, or is waited for.
    pub(super) fn collected(&mut self, mut collector: Collector) -> Action {
        match collector.end() {
            Ok(body) => self.whole(body),
            Err(failure) => self.failed(failure),
        }
    }

    /// Sees to memory for an answer that has grown to `bytes`. `Some`: what to do instead.
    async fn hold(&mut self, memory: &mut Memory, bytes: usize) -> Option<Action> {
        let gateway = Rc::clone(&self.job.gateway);
        let most = gateway.config.limits.answer_buffer;
        if bytes > most {
            self.limit_hit(Limit::AnswerBuffer);
            let words = format!("an answer of over {most} bytes (limits.answer_buffer)");
            return Some(self.failed(Failure::with(Cause::Overflow, &words)));
        }
        if bytes <= memory.bytes {
            return None;
        }
        let whole = bytes.max(2 * memory.bytes).max(COLLECT_STEP_BYTES);
        // The server is not read from meanwhile. Half an answer is too dear to be thrown away for want of room: the stall's
        // deadline bounds this.
        let room = gateway.bodies.reserve(whole - memory.bytes, whole, limits::TOTAL);
        match self.pace.run(room).await {
            Ok(Some(more)) => {
                match &mut memory.reserved {
                    Some(reserved) => reserved.add(more),
                    None => memory.reserved = Some(more),
                }
                memory.bytes = whole;
                None
            }
            Ok(None) => {
                self.limit_hit(Limit::BodyMemory);
                Some(self.failed(Failure::new(Cause::NoBuffer)))
            }
            Err(action) => Some(action),
        }
    }
}
