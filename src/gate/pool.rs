//! The gate's buffers: a fixed number of a fixed size, made at start, given back on drop.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::BytesMut;

/// All gate buffers of the process.
#[derive(Clone, Debug)]
pub struct Pool {
    free: Rc<RefCell<Vec<BytesMut>>>,
    count: usize,
}

impl Pool {
    /// `count` buffers of `size` bytes each, cut from one piece of memory: what was never used of it costs none
    /// but address space, while many small pieces would come from the heap and be zeroed by hand.
    #[must_use]
    pub fn new(count: usize, size: usize) -> Self {
        let mut all = BytesMut::zeroed(count * size);
        let buffers = (0..count).map(|_| all.split_to(size)).collect();
        Pool { free: Rc::new(RefCell::new(buffers)), count }
    }

    /// A free buffer, or `None`: an ordinary result, the caller waits or sheds.
    #[must_use]
    pub fn take(&self) -> Option<Buffer> {
        let bytes = self.free.borrow_mut().pop()?;
        Some(Buffer { bytes, home: Rc::clone(&self.free) })
    }

    /// Buffers in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.count - self.free.borrow().len()
    }
}

/// One buffer, on loan. Dropping it gives it back, a panic's unwinding included.
#[derive(Debug)]
pub struct Buffer {
    bytes: BytesMut,
    home: Rc<RefCell<Vec<BytesMut>>>,
}

impl Buffer {
    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of it, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The vector was made with room for every buffer: this push never allocates.
        self.home.borrow_mut().push(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_even_from_a_panic() {
        let pool = Pool::new(2, 8);
        let first = pool.take().unwrap();
        let lent = pool.clone();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = lent.take().unwrap();
            panic!("one request's bug");
        }));
        assert!(result.is_err());
        assert_eq!(pool.in_use(), 1);
        let second = pool.take().unwrap();
        assert!(pool.take().is_none(), "an empty pool gives nothing");
        assert_eq!((first.bytes().len(), second.bytes().len()), (8, 8));
        drop((first, second));
        assert_eq!(pool.in_use(), 0);
    }
}
