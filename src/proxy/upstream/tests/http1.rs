//! What goes over one HTTP/1 connection, and when it is used again.

use super::*;
use crate::limits;
use std::io::Write;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

#[tokio::test]
async fn a_request_goes_out_as_promised() {
    local(async {
        let (listener, upstreams) = plain().await;
        let port = listener.local_addr().unwrap().port();
        let server = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let seen = request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
                .await;
            say(&mut stream, OK).await;
            seen
        });
        let slices = ["{\"model\":\"", "", "llama", "\"}"].map(|part| Bytes::from_static(part.as_bytes()));
        let mut asked = post("http://ignored/v1/chat?x=1", RequestBody::new(slices.to_vec()));
        asked.headers_mut().insert("content-length", "999".parse().unwrap());
        asked.headers_mut().insert("host", "evil".parse().unwrap());
        asked.headers_mut().insert("accept-encoding", "identity".parse().unwrap());
        let link = upstreams.connect(0, false).await.unwrap();
        assert!(!link.reused && !link.is_http2());
        let mut reply = link.send(asked).await.unwrap();
        assert_eq!(reply.status, 200);
        assert_eq!(read(&mut reply).await, (b"ok".to_vec(), None));
        let (head, body) = server.await.unwrap();
        let mut lines: Vec<_> = head.trim_end().lines().collect();
        lines[1..].sort_unstable();
        let host = format!("host: 127.0.0.1:{port}");
        assert_eq!(
            lines,
            ["POST /v1/chat?x=1 HTTP/1.1", "accept-encoding: identity", "content-length: 17", &host]
        );
        assert_eq!(body, b"{\"model\":\"llama\"}");
    })
    .await;
}

#[tokio::test]
async fn a_connection_is_reused_after_a_clean_end() {
    local(async {
        let (listener, upstreams) = plain().await;
        let server = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
                .await;
            request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 204 No Content\r\n\r\n").await;
            request(&mut stream).await;
            say(&mut stream, OK).await;
            closed(&mut stream).await;
        });
        for reused in [false, true, true] {
            let mut reply = ask(&upstreams).await.unwrap();
            assert_eq!(reply.reused, reused);
            assert_eq!(read(&mut reply).await.1, None);
            assert!(reply.chunk().await.is_none(), "the end stays the end");
            assert_eq!(upstreams.idle(0), 1);
        }
        drop(upstreams);
        server.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_must_not_be_reused_is_not() {
    local(async {
        for answer in [
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
        ] {
            let (listener, upstreams) = plain().await;
            let server = spawn_local(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                request(&mut stream).await;
                say(&mut stream, answer).await;
                closed(&mut stream).await;
            });
            let mut reply = ask(&upstreams).await.unwrap();
            assert_eq!(read(&mut reply).await, (b"ok".to_vec(), None), "{answer}");
            assert_eq!(upstreams.idle(0), 0, "{answer}");
            server.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn an_end_by_close_is_clean_without_a_length() {
    local(async {
        let (listener, upstreams) = plain().await;
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 OK\r\n\r\nto the end").await;
        });
        let mut reply = ask(&upstreams).await.unwrap();
        assert_eq!(read(&mut reply).await, (b"to the end".to_vec(), None));
        assert_eq!(upstreams.idle(0), 0);
    })
    .await;
}

#[tokio::test]
async fn fresh_means_fresh_and_a_closed_idle_one_is_noticed() {
    local(async {
        let (listener, upstreams) = plain().await;
        let (close, may_close) = oneshot::channel::<()>();
        let server = spawn_local(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            request(&mut first).await;
            say(&mut first, OK).await;
            let (mut second, _) = listener.accept().await.unwrap();
            request(&mut second).await;
            say(&mut second, OK).await;
            may_close.await.unwrap();
            drop((first, second));
            listener
        });
        read(&mut ask(&upstreams).await.unwrap()).await;
        let link = upstreams.connect(0, true).await.unwrap();
        assert!(!link.reused);
        read(&mut link.send(small()).await.unwrap()).await;
        assert_eq!(upstreams.idle(0), 2);
        close.send(()).unwrap();
        let _listener = server.await.unwrap();
        // The event loop must have heard of it.
        while upstreams.idle(0) > 0 {
            assert!(upstreams.sweep(crate::time::now()).is_empty(), "no spare target");
            tokio::task::yield_now().await;
        }
        assert!(!upstreams.connect(0, false).await.unwrap().reused);
    })
    .await;
}

#[tokio::test]
async fn a_closed_idle_one_is_not_given_out() {
    local(async {
        let (listener, upstreams) = plain().await;
        spawn_local(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            request(&mut first).await;
            say(&mut first, OK).await;
            let (mut second, _) = listener.accept().await.unwrap();
            request(&mut second).await;
            drop(first);
            // Heard after the first one's end.
            say(&mut second, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
            drop(second);
            let _third = listener.accept().await.unwrap();
        });
        read(&mut ask(&upstreams).await.unwrap()).await;
        let mut reply = upstreams.connect(0, true).await.unwrap().send(small()).await.unwrap();
        assert_eq!(read(&mut reply).await, (Vec::new(), None));
        assert_eq!(upstreams.idle(0), 1, "not looked at yet");
        assert!(!upstreams.connect(0, false).await.unwrap().reused);
    })
    .await;
}

#[tokio::test]
async fn idle_ones_age_and_are_bounded() {
    let test = async {
        let (listener, upstreams) = plain().await;
        let serve = async |stream: &mut TcpStream| {
            request(stream).await;
            say(stream, OK).await;
        };
        let all = limits::IDLE_MAX + 2;
        let (mut links, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..all {
            links.push(upstreams.connect(0, true).await.unwrap());
            streams.push(listener.accept().await.unwrap().0);
        }
        for (link, stream) in links.into_iter().zip(&mut streams) {
            let (reply, ()) = tokio::join!(link.send(small()), serve(stream));
            read(&mut reply.unwrap()).await;
        }
        assert_eq!(upstreams.idle(0), limits::IDLE_MAX);

        tokio::time::pause();
        tokio::time::advance(limits::IDLE_LOCAL).await;
        assert!(!upstreams.connect(0, false).await.unwrap().reused);
        assert_eq!(upstreams.idle(0), 0);
    };
    // Without `local`'s patience, which a paused clock would use up at once.
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn dropping_closes_the_socket() {
    local(async {
        for stage in 0..3 {
            let (listener, upstreams) = plain().await;
            let (reached, at_stage) = oneshot::channel::<()>();
            let server = spawn_local(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                if stage > 0 {
                    request(&mut stream).await;
                }
                if stage == 1 {
                    reached.send(()).unwrap();
                } else if stage == 2 {
                    say(&mut stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
                        .await;
                }
                closed(&mut stream).await;
            });
            let link = upstreams.connect(0, false).await.unwrap();
            match stage {
                0 => drop(link),
                1 => {
                    tokio::select! {
                        reply = link.send(small()) => panic!("{reply:?}"),
                        reached = at_stage => reached.unwrap(),
                    }
                }
                _ => {
                    let mut reply = link.send(small()).await.unwrap();
                    assert_eq!(reply.chunk().await.unwrap().unwrap(), "ok");
                }
            }
            server.await.unwrap();
            assert_eq!(upstreams.idle(0), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn each_chunk_comes_when_it_was_sent() {
    local(async {
        let (listener, upstreams) = plain().await;
        let (sender, mut heard) = tokio::sync::mpsc::channel::<()>(1);
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for at in 0..50 {
                say(&mut stream, format!("3\r\n{at:03}\r\n")).await;
                heard.recv().await.unwrap();
            }
            say(&mut stream, "0\r\n\r\n").await;
        });
        let mut reply = ask(&upstreams).await.unwrap();
        for at in 0..50 {
            assert_eq!(reply.chunk().await.unwrap().unwrap(), format!("{at:03}"));
            sender.send(()).await.unwrap();
        }
        assert!(reply.chunk().await.is_none());
    })
    .await;
}

#[tokio::test]
async fn unix_sockets_work() {
    local(async {
        let path = std::env::temp_dir().join(format!("edgeward-upstream-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let upstreams = upstreams(target(TargetUrl::Unix { path: path.clone() }, Place::Local));
        let server = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (head, _) = request(&mut stream).await;
            say(&mut stream, OK).await;
            head
        });
        let mut reply = ask(&upstreams).await.unwrap();
        assert_eq!(read(&mut reply).await, (b"ok".to_vec(), None));
        assert!(server.await.unwrap().contains("\r\nhost: localhost\r\n"));
        std::fs::remove_file(&path).unwrap();
    })
    .await;
}

#[tokio::test]
async fn gzip_is_undone_chunk_by_chunk() {
    local(async {
        let (listener, upstreams) = plain().await;
        let (sender, mut heard) = tokio::sync::mpsc::channel::<()>(1);
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            say(
                &mut stream,
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
            )
            .await;
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            for at in 0..3 {
                writeln!(gzip, "data: {at}").unwrap();
                gzip.flush().unwrap();
                let piece = std::mem::take(gzip.get_mut());
                say(&mut stream, format!("{:x}\r\n", piece.len())).await;
                say(&mut stream, piece).await;
                say(&mut stream, "\r\n").await;
                heard.recv().await.unwrap();
            }
            let rest = gzip.finish().unwrap();
            say(&mut stream, format!("{:x}\r\n", rest.len())).await;
            say(&mut stream, rest).await;
            say(&mut stream, "\r\n0\r\n\r\n").await;
            closed(&mut stream).await;
        });
        let mut reply = ask(&upstreams).await.unwrap();
        assert!(!reply.headers.contains_key("content-encoding"));
        for at in 0..3 {
            assert_eq!(reply.chunk().await.unwrap().unwrap(), format!("data: {at}\n"));
            sender.send(()).await.unwrap();
        }
        assert!(reply.chunk().await.is_none());
        assert_eq!(upstreams.idle(0), 1, "the connection is whole");
    })
    .await;
}

#[tokio::test]
async fn a_token_costs_two_polls() {
    local(async {
        let (listener, upstreams) = plain().await;
        let (sender, mut waiting) = tokio::sync::mpsc::channel::<()>(1);
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            while waiting.recv().await.is_some() {
                // Time for the reader to be woken for nothing.
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                }
                say(&mut stream, "2\r\nok\r\n").await;
            }
        });
        // In a task of its own: what `local` runs shares its wakes with all tasks.
        let reader = spawn_local(async move {
            let mut reply = ask(&upstreams).await.unwrap();
            let mut polls = 0;
            for _ in 0..100 {
                let mut told = false;
                let chunk = std::future::poll_fn(|cx| {
                    polls += 1;
                    let chunk = reply.poll_chunk(cx);
                    if chunk.is_pending() && !told {
                        told = true;
                        sender.try_send(()).unwrap();
                    }
                    chunk
                });
                assert_eq!(chunk.await.unwrap().unwrap(), "ok");
            }
            polls
        });
        let polls = reader.await.unwrap();
        assert!(polls <= 210, "{polls} polls");
    })
    .await;
}
