//! Between clients and targets. [`drive`] is the way of a request, and the file to read first;
//! [`exchange`] decides what it does, [`server`] is what comes before it.

pub mod account;
pub mod auth;
pub mod body;
pub mod cancel;
pub mod clock;
pub mod cors;
pub mod discovery;
pub mod downstream;
pub mod drive;
pub mod endpoint;
pub mod exchange;
pub mod gateway;
pub mod head;
pub mod listen;
pub mod models;
pub mod news;
pub mod operator;
pub mod outlet;
pub mod pass;
pub mod refusal;
pub mod relay;
pub mod server;
pub mod shape;
pub mod turns;
pub mod upstream;
