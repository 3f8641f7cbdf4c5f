//! The helper, as edgeward has it: a task reads what it says for as long as edgeward runs, starts it again when it ends,
//! and asks it what others ask here.
//!
//! Nothing waits for it: a driver that hangs makes it silent, what it told fades, and clients are served as before.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::pin;
use std::time::Instant;

use rustix::net::SendFlags;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::{Notify, oneshot};

use super::alarm::Alarm;
use crate::limits;
use crate::memory::gpu::{Backoff, Gpus, News, Sight, smi_line};
use crate::memory::kernel::Notice;
use crate::memory::record::{BYTES, Owner, Record, Why};
use crate::observe::{self, events, memory_events};
use crate::time::now;

mod link;
mod once;

use link::{Link, NAME, Running, SMI, Trouble, Who};
pub use link::{Place, SOCKET, SOCKET_VARIABLE};
pub use once::{Process, once};

/// What the helper reads the kernel's log from.
const KMSG: &str = "/dev/kmsg";
/// What helps against that.
pub const DEAF_REMEDY: &str = "without it nobody says why a model server was killed: the helper's unit grants it, by CAP_SYSLOG \
    and DeviceAllow=/dev/kmsg";

/// Who is told what the kernel says, and when it was heard.
pub type Heard<'h> = &'h dyn Fn(&Notice, Instant);

/// A question under way.
#[derive(Debug)]
struct Question {
    number: u32,
    inode: u64,
    asked: bool,
    answer: oneshot::Sender<Option<Owner>>,
}

/// What the helper has told, and what it can be asked. One a process.
#[derive(Debug, Default)]
pub struct Helper {
    gpus: RefCell<Gpus>,
    /// Who is connected.
    who: Cell<Option<Who>>,
    /// Its version; nvidia-smi has none.
    version: RefCell<Option<String>>,
    /// Why there is none.
    trouble: RefCell<Option<String>>,
    restarts: Cell<u32>,
    /// There is a driver, so that there should be a GPU.
    expects_gpu: Cell<bool>,
    /// It ended as it should: blind until a new one has another library.
    expected: Cell<bool>,
    /// It cannot read the kernel's log.
    deaf: Cell<bool>,
    questions: RefCell<heapless::Vec<Question, { limits::HELPER_QUESTIONS }>>,
    last_question: Cell<u32>,
    asked: Notify,
    /// How it or a GPU stands is not what it was.
    changed: Notify,
}

impl Helper {
    /// What is known of the GPUs, and of the helper itself.
    pub fn gpus<T>(&self, look: impl FnOnce(&Gpus) -> T) -> T {
        look(&self.gpus.borrow())
    }

    /// All memory of the GPU that has the least free, and what is free of it, in KiB; see [`Gpus::memory`].
    #[must_use]
    pub fn memory(&self) -> Option<(u64, u64)> {
        self.gpus.borrow().memory()
    }

    /// What a process holds of the GPUs' memory, in KiB, if that is known.
    #[must_use]
    pub fn held_by(&self, pid: u32) -> Option<u32> {
        self.gpus.borrow().held(pid)
    }

    /// Its version, if it is connected and has one.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        self.version.borrow().clone()
    }

    /// Why it cannot be asked.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// How often it has ended and was started again.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts.get()
    }

    /// Whether it hears the kernel's log.
    #[must_use]
    pub fn hears_kernel(&self) -> bool {
        self.who.get() == Some(Who::Helper) && !self.deaf.get()
    }

    /// Whether it can be asked whose a socket is.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.who.get() == Some(Who::Helper)
    }

    /// Resolves when how it or a GPU stands has changed; at once, where that was while nobody waited.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Who tells of the GPUs: the helper's name, or nvidia-smi.
    #[must_use]
    pub fn source(&self) -> Option<&'static str> {
        self.who.get().map(|who| match who {
            Who::Helper => NAME,
            Who::Smi => SMI,
        })
    }

    /// Which process has the socket with this inode; `None` where the helper cannot see it, or gives no answer within
    /// [`limits::HELPER_QUESTION`]; at once while there is no helper.
    pub async fn who_has(&self, inode: u64) -> Option<Owner> {
        // nvidia-smi answers no questions.
        self.answers().then_some(())?;
        let (answer, result) = oneshot::channel();
        let number = self.last_question.get().wrapping_add(1);
        self.last_question.set(number);
        // More at once than there may be are not asked.
        self.questions.borrow_mut().push(Question { number, inode, asked: false, answer }).ok()?;
        self.asked.notify_one();
        let answer = tokio::time::timeout(limits::HELPER_QUESTION, result).await;
        self.questions.borrow_mut().retain(|question| question.number != number);
        answer.ok()?.ok()?
    }

    /// Reads it for ever. Says nothing on a box that has nothing to ask.
    pub async fn keep_reading(&self, place: Place, heard: Heard<'_>) {
        let (alarm, mut backoff) = (Alarm::new(), Backoff::default());
        // A child that was killed and is still there.
        let mut leftover: Option<Running> = None;
        let mut quiet = false;
        loop {
            if !place.is_wanted() {
                if !std::mem::replace(&mut quiet, true) {
                    observe::fine("the NVML helper is not asked", None, &"no NVIDIA driver here");
                }
                // It may be loaded later.
                alarm.after(limits::HELPER_PAUSE_MAX).await;
                continue;
            }
            self.expects_gpu.set(place.expects_gpu());
            let began = now();
            let trouble = if leftover.as_mut().is_some_and(|child| !child.is_over()) {
                Trouble::Stuck
            } else {
                match link::open(place.clone()).await {
                    Ok(mut link) => {
                        let child = link.child.take();
                        let trouble = self.read(link, &alarm, heard).await;
                        leftover = ended(child, &alarm).await;
                        trouble
                    }
                    Err(trouble) => trouble,
                }
            };
            let pause = backoff.after(now().saturating_duration_since(began));
            self.over(&trouble, pause.as_secs());
            alarm.after(pause).await;
        }
    }

    /// Its connection is over.
    fn over(&self, trouble: &Trouble, pause: u64) {
        let blind = matches!(self.gpus.borrow().sight(), Sight::Blind(Why::Mismatch, _));
        self.expected.set(blind && matches!(trouble, Trouble::Gone));
        self.gpus.borrow_mut().ended();
        self.changed.notify_one();
        // Whoever waits for an answer gets none.
        self.questions.borrow_mut().clear();
        self.version.borrow_mut().take();
        let why = trouble.to_string();
        let again = self.trouble.borrow_mut().replace(why.clone()).is_some_and(|before| before == why);
        if self.who.take().is_some() {
            self.restarts.set(self.restarts.get().saturating_add(1));
            if !self.expected.get() {
                events::helper_restarted(&why, pause);
            }
        } else if !again {
            events::helper_unavailable(&why, trouble.remedy());
        }
    }

    /// Reads until there is trouble.
    async fn read(&self, link: Link, alarm: &Alarm, heard: Heard<'_>) -> Trouble {
        let who = link.who;
        let mut stream = match UnixStream::from_std(link.stream) {
            Ok(stream) => stream,
            Err(error) => return Trouble::Reading(error),
        };
        let mut inbox = Inbox::default();
        if who == Who::Helper {
            let greeting = tokio::time::timeout(limits::HELPER_ANSWER, inbox.hello(&mut stream)).await;
            match greeting.unwrap_or(Err(Trouble::Silent)) {
                Ok(version) => {
                    if !self.expected.replace(false) {
                        events::helper_ready(&version);
                    }
                    *self.version.borrow_mut() = Some(version);
                }
                Err(trouble) => return trouble,
            }
        } else {
            events::helper_replaced();
        }
        self.who.set(Some(who));
        self.trouble.borrow_mut().take();
        self.gpus.borrow_mut().began(now());
        self.changed.notify_one();
        let mut ring = pin!(alarm.after(limits::HELPER_STALE));
        loop {
            // The first ones may have come with the first line.
            if let Err(trouble) = self.take(who, &mut inbox, heard) {
                return trouble;
            }
            tokio::select! {
                read = inbox.fill(&mut stream) => {
                    if let Err(trouble) = read {
                        return if matches!(trouble, Trouble::Ended) { Trouble::Gone } else { trouble };
                    }
                }
                () = &mut ring => {
                    let at = now();
                    let news = self.gpus.borrow_mut().look(at);
                    if news == Some(News::Hopeless) {
                        return Trouble::Mute;
                    }
                    self.tell(news, at, heard);
                    ring.set(alarm.after(self.gpus.borrow().next_look(at)));
                }
                () = self.asked.notified() => self.ask(&stream),
            }
        }
    }

    /// Everything that has come whole.
    fn take(&self, who: Who, inbox: &mut Inbox, heard: Heard<'_>) -> Result<(), Trouble> {
        let at = now();
        loop {
            let record = match who {
                Who::Helper => match inbox.record() {
                    Some(bytes) => Record::decode(&bytes).map_err(|other| Trouble::Other(other.0))?,
                    None => return Ok(()),
                },
                Who::Smi => match inbox.line()? {
                    Some(line) => smi_line(line.trim_ascii()),
                    None => return Ok(()),
                },
            };
            // What this release does not know is another's business.
            let Some(record) = record else { continue };
            let news = self.gpus.borrow_mut().take(record, at);
            self.tell(news, at, heard);
        }
    }

    fn ask(&self, stream: &UnixStream) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        for question in self.questions.borrow_mut().iter_mut().filter(|question| !question.asked) {
            question.asked = true;
            let record = Record::Who(question.number, question.inode).encode();
            // One that reads nothing gives no answer.
            let _unread = rustix::net::send(stream, &record, flags);
        }
    }

    fn tell(&self, news: Option<News>, at: Instant, heard: Heard<'_>) {
        if news.is_some() {
            self.changed.notify_one();
        }
        match news {
            Some(News::Stale) => events::helper_stale(limits::HELPER_STALE.as_secs()),
            Some(News::Blind(Why::NoLibrary, _)) if !self.expects_gpu.get() => {
                observe::fine("the NVML helper sees no GPU", None, &"no NVIDIA driver here");
            }
            Some(News::Blind(why, code)) => events::gpu_blind(why.as_str(), code, remedy(why)),
            Some(News::Sees) => events::gpu_seen(),
            Some(News::Down(device, fault)) => events::gpu_down(device, fault.as_str()),
            Some(News::Up(device)) => events::gpu_up(device),
            Some(News::Heard(notice)) => heard(&notice, at),
            Some(News::Owner(number, owner)) => {
                let mut questions = self.questions.borrow_mut();
                if let Some(place) = questions.iter().position(|question| question.number == number) {
                    // Whoever asked may wait no longer.
                    let _gone = questions.swap_remove(place).answer.send(owner);
                }
            }
            Some(News::Deaf(errno)) => {
                if !self.deaf.replace(true) {
                    let error = io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
                    memory_events::source_missing(Path::new(KMSG), &error, DEAF_REMEDY);
                }
            }
            Some(News::Hopeless) | None => {}
        }
    }
}

/// Ends a child. One that a driver holds is given back.
async fn ended(child: Option<Running>, alarm: &Alarm) -> Option<Running> {
    const TIMES: u32 = 50;
    let mut child = child?;
    child.kill();
    for _ in 0..TIMES {
        if child.is_over() {
            return None;
        }
        alarm.after(limits::HELPER_END / TIMES).await;
    }
    Some(child)
}

/// What helps against being blind.
#[must_use]
pub const fn remedy(why: Why) -> &'static str {
    match why {
        Why::NoLibrary => "where there is a GPU, install the driver's libnvidia-ml.so.1",
        Why::NoDriver => "load it: modprobe nvidia",
        Why::Mismatch => "reboot, or load the driver's module anew",
        Why::NoDevice => "look at nvidia-smi -L and the unit's DeviceAllow=",
        Why::NotAllowed => "look at the unit's DeviceAllow= and at who may open /dev/nvidia*",
        Why::Failed => "look at nvidia-smi and dmesg",
    }
}

/// What has come and is not taken yet.
#[derive(Debug)]
struct Inbox {
    bytes: [u8; limits::HELPER_INBOX_BYTES],
    filled: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox { bytes: [0; limits::HELPER_INBOX_BYTES], filled: 0 }
    }
}

impl Inbox {
    /// Waits for more. Nothing is lost where the wait is given up.
    async fn fill(&mut self, stream: &mut UnixStream) -> Result<(), Trouble> {
        let Some(room) = self.bytes.get_mut(self.filled..).filter(|room| !room.is_empty()) else {
            return Err(Trouble::TooLong);
        };
        match stream.read(room).await {
            Ok(0) => Err(Trouble::Ended),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            // As a socket's peer ends that has not read everything.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Trouble::Ended),
            Err(error) => Err(Trouble::Reading(error)),
        }
    }

    fn whole(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// Takes so many bytes out.
    fn taken(&mut self, count: usize) {
        let count = count.min(self.filled);
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
    }

    fn record(&mut self) -> Option<[u8; BYTES]> {
        let record = *self.whole().first_chunk::<BYTES>()?;
        self.taken(BYTES);
        Some(record)
    }

    /// A line, without its end.
    fn line(&mut self) -> Result<Option<heapless::Vec<u8, { limits::HELPER_LINE_BYTES }>>, Trouble> {
        let end = self.whole().iter().position(|byte| *byte == b'\n');
        let line = self.whole().get(..end.unwrap_or(self.filled)).unwrap_or_default();
        let line = heapless::Vec::from_slice(line).ok().filter(|line| !line.is_full());
        let Some(line) = line else { return Err(Trouble::TooLong) };
        let Some(end) = end else { return Ok(None) };
        self.taken(end + 1);
        Ok(Some(line))
    }

    /// The version in the helper's first line, however slowly it comes.
    async fn hello(&mut self, stream: &mut UnixStream) -> Result<String, Trouble> {
        loop {
            if let Some(line) = self.line()? {
                return version(&line).map(str::to_owned).ok_or(Trouble::Unclear);
            }
            self.fill(stream).await?;
        }
    }
}

/// Of `edgeward-nvml 1.2.3`; nothing that a log could not take.
fn version(line: &[u8]) -> Option<&str> {
    let version = std::str::from_utf8(line).ok()?.strip_prefix(NAME)?.strip_prefix(' ')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-".contains(&byte);
    (!version.is_empty() && version.bytes().all(plain)).then_some(version)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use crate::memory::record::Figures;
    use std::io::Read as _;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn pair() -> (UnixStream, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (UnixStream::from_std(ours).unwrap(), theirs)
    }

    fn told(pieces: &[&[u8]]) -> Result<String, String> {
        run(async {
            let (mut ours, mut theirs) = pair();
            for piece in pieces {
                theirs.write_all(piece).unwrap();
            }
            drop(theirs);
            Inbox::default().hello(&mut ours).await.map_err(|trouble| trouble.to_string())
        })
    }

    #[test]
    fn a_version_is_taken_and_nothing_else() {
        assert_eq!(told(&[b"edgeward-nvml 0.1.0\n"]), Ok("0.1.0".to_owned()));
        assert_eq!(told(&[b"edgeward-", b"nvml 1.2.3-rc.1+b\nmore"]), Ok("1.2.3-rc.1+b".to_owned()));
        let longest = format!("edgeward-nvml {}\n", "1".repeat(limits::HELPER_LINE_BYTES - 15));
        assert!(told(&[longest.as_bytes()]).is_ok());
        for (said, want) in [
            (&b""[..], "ended"),
            (b"edgeward-nvml 0.1.0", "ended"),
            (b"\n", "names no version"),
            (b"edgeward-nvml \n", "names no version"),
            (b"edgeward-nvml\t1\n", "names no version"),
            (b"edgeward-nvml 1 2\n", "names no version"),
            (b"edgeward-nvml 1\x1b[2J\n", "names no version"),
            (b"edgeward-nvml \xff\n", "names no version"),
            (b"edgeward 0.1.0\n", "names no version"),
            (&[b'x'; limits::HELPER_LINE_BYTES], "longer"),
            (&[b'x'; 8 * limits::HELPER_LINE_BYTES], "longer"),
        ] {
            let trouble = told(&[said]).unwrap_err();
            assert!(trouble.contains(want), "{:?}: {trouble}", String::from_utf8_lossy(said));
        }
    }

    /// What came with the first line is not lost, and a record in pieces is one.
    #[test]
    fn records_come_in_any_pieces() {
        let figures = Record::Figures(0, Figures { total: 4096, free: 1024, ..Figures::default() });
        let mut all = b"edgeward-nvml 0.1.0\n".to_vec();
        (0..40).for_each(|_| all.extend(figures.encode()));
        for piece in [1, 7, 64, 100, 1000] {
            run(async {
                let (mut ours, mut theirs) = pair();
                let (helper, mut inbox) = (Helper::default(), Inbox::default());
                let mut count = 0;
                for piece in all.chunks(piece) {
                    theirs.write_all(piece).unwrap();
                    inbox.fill(&mut ours).await.unwrap();
                    if helper.who.get().is_none() {
                        if inbox.line().unwrap().is_none() {
                            continue;
                        }
                        helper.who.set(Some(Who::Helper));
                        helper.gpus.borrow_mut().began(now());
                    }
                    count += inbox.filled / BYTES;
                    helper.take(Who::Helper, &mut inbox, &|_, _| {}).unwrap();
                }
                assert_eq!((count, inbox.filled, helper.memory()), (40, 0, Some((4, 1))));
            });
        }
    }

    #[test]
    fn records_of_another_version_are_not_read_on() {
        let mut inbox = Inbox { filled: BYTES, ..Inbox::default() };
        inbox.bytes[0] = 77;
        let trouble = Helper::default().take(Who::Helper, &mut inbox, &|_, _| {}).unwrap_err();
        assert!(trouble.to_string().contains("version 77"), "{trouble}");
    }

    #[test]
    fn a_question_is_answered_and_one_without_a_helper_at_once() {
        run(async {
            let helper = Helper::default();
            assert_eq!(helper.who_has(7).await, None);
            helper.who.set(Some(Who::Helper));
            let (ours, mut theirs) = pair();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let inode = rustix::fs::fstat(&listener).unwrap().st_ino;
            let owner = Owner { pid: 42, start: 9 };
            let answers = async {
                helper.asked.notified().await;
                helper.ask(&ours);
                let mut question = [0; BYTES];
                theirs.read_exact(&mut question).unwrap();
                let Ok(Some(Record::Who(number, asked))) = Record::decode(&question) else {
                    panic!("{question:?}")
                };
                assert_eq!(asked, inode);
                let news = Gpus::default().take(Record::Owner(number, Some(owner)), now());
                helper.tell(news, now(), &|_, _| {});
            };
            let ((), answer) = tokio::join!(answers, helper.who_has(inode));
            assert_eq!(answer, Some(owner));
            assert!(helper.questions.borrow().is_empty());
        });
    }

    #[test]
    fn no_answer_is_waited_for_and_more_than_may_be_are_not_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let helper = Helper::default();
            helper.who.set(Some(Who::Helper));
            let start = now();
            let questions: Vec<_> =
                (0..limits::HELPER_QUESTIONS).map(|_| Box::pin(helper.who_has(7))).collect();
            let last = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert_eq!((helper.who_has(7).await, now() - start < limits::HELPER_QUESTION), (None, true));
            };
            let all = async {
                let mut questions = questions;
                std::future::poll_fn(|context| {
                    questions.retain_mut(|question| question.as_mut().poll(context).is_pending());
                    if questions.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
                })
                .await;
            };
            tokio::join!(all, last);
            assert!(now() - start >= limits::HELPER_QUESTION && helper.questions.borrow().is_empty());
        });
    }

    #[test]
    fn what_the_kernel_says_is_passed_on() {
        let killed =
            Notice::parse(b"3,1,2,-;Out of memory: Killed process 42 (ollama) total-vm:1kB").unwrap();
        let mut inbox = Inbox { filled: BYTES, ..Inbox::default() };
        inbox.bytes[..BYTES].copy_from_slice(&Record::Kernel(killed.clone()).encode());
        let heard = RefCell::new(Vec::new());
        let keep = |notice: &Notice, _: Instant| heard.borrow_mut().push(notice.clone());
        Helper::default().take(Who::Helper, &mut inbox, &keep).unwrap();
        assert_eq!(heard.into_inner(), [killed]);
    }

    #[test]
    fn lines_of_nvidia_smi_are_figures() {
        let mut inbox = Inbox::default();
        let text = b"0, 1000, 250\nNVIDIA-SMI has failed\n1, 10";
        inbox.bytes[..text.len()].copy_from_slice(text);
        inbox.filled = text.len();
        let helper = Helper::default();
        helper.take(Who::Smi, &mut inbox, &|_, _| {}).unwrap();
        assert_eq!((helper.memory(), inbox.whole()), (Some((1000 << 10, 250 << 10)), &b"1, 10"[..]));
    }
}
