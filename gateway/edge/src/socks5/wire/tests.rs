use proptest::prelude::*;

use super::*;

/// Admits only this user with this password.
struct Only(&'static [u8], &'static [u8]);

const NOBODY: Only = Only(b"", b"");

/// All outputs for `input` fed at once, and the rest of it.
fn run(
    authenticate: bool,
    credentials: &Only,
    input: &[u8],
) -> (Vec<Result<Output, SocksError>>, Vec<u8>) {
    let mut handshake = Handshake::new(authenticate);
    handshake.receive(input);
    let mut outputs = Vec::new();
    loop {
        let output = match handshake.poll_output() {
            Ok(Output::Judge { user, password }) => {
                let admitted = user == credentials.0 && password == credentials.1;
                handshake.judge(admitted).map(Output::Send)
            }
            output => output,
        };
        match output {
            Ok(Output::Wait) => break,
            Err(error) => {
                outputs.push(Err(error));
                break;
            }
            output => outputs.push(output),
        }
    }
    (outputs, handshake.into_rest())
}

#[test]
fn connect_to_each_address_type_is_understood() {
    let cases: [(&[u8], Target); 3] = [
        (
            &[1, 192, 0, 2, 1, 0, 80],
            Target::parse("192.0.2.1", 80).unwrap(),
        ),
        (
            &[
                4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 187,
            ],
            Target::parse("2001:db8::1", 443).unwrap(),
        ),
        (
            b"\x03\x0bexample.org\x00\x50",
            Target::parse("example.org", 80).unwrap(),
        ),
    ];
    for (address, target) in cases {
        let mut input = vec![5, 1, 0, 5, 1, 0];
        input.extend(address);
        input.extend(b"early");
        let (outputs, rest) = run(false, &NOBODY, &input);
        assert_eq!(
            outputs,
            [Ok(Output::Send(vec![5, 0])), Ok(Output::Connect(target))]
        );
        assert_eq!(rest, b"early");
    }
}

#[test]
fn password_is_demanded_and_checked() {
    let alice = Only(b"alice", b"secret");
    let good = b"\x05\x02\x00\x02\x01\x05alice\x06secret\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50";
    let (outputs, _) = run(true, &alice, good);
    assert_eq!(outputs[0], Ok(Output::Send(vec![5, 2])));
    assert_eq!(outputs[1], Ok(Output::Send(vec![1, 0])));
    assert!(matches!(outputs[2], Ok(Output::Connect(_))));

    let (outputs, _) = run(true, &alice, b"\x05\x01\x02\x01\x05alice\x05wrong");
    assert_eq!(outputs[1], Err(SocksError::Credentials));
    assert_eq!(SocksError::Credentials.reply(), Some(vec![1, 1]));

    let (outputs, _) = run(true, &alice, b"\x05\x01\x00");
    assert_eq!(outputs, [Err(SocksError::Methods)]);
}

#[test]
fn what_is_not_supported_gets_its_own_reply() {
    let (outputs, _) = run(false, &NOBODY, b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\0\0");
    assert_eq!(outputs[1], Err(SocksError::Command(3)));
    assert_eq!(SocksError::Command(3).reply().unwrap()[1], 7);
    let (outputs, _) = run(false, &NOBODY, b"\x05\x01\x00\x05\x01\x00\x09\0\0");
    assert_eq!(outputs[1], Err(SocksError::AddressType(9)));
    assert_eq!(SocksError::AddressType(9).reply().unwrap()[1], 8);
    let (outputs, _) = run(false, &NOBODY, b"GET / HTTP/1.1\r\n");
    assert_eq!(outputs, [Err(SocksError::Version(b'G'))]);
}

#[test]
fn failures_of_the_dial_have_their_numbers() {
    let numbers = [
        (FailureCode::Forbidden, 2),
        (FailureCode::Unreachable, 3),
        (FailureCode::UnknownHost, 4),
        (FailureCode::Refused, 5),
        (FailureCode::TimedOut, 6),
    ];
    for (code, number) in numbers {
        assert_eq!(reply(Err(code)), [5, number, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
}

proptest! {
    #[test]
    fn any_split_of_the_input_means_the_same(
        cut in proptest::collection::vec(1usize..9, 1..40),
        name in "[a-z]{1,20}\\.[a-z]{2,5}",
        port: u16,
        early in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut input = vec![5, 2, 0, 2, 5, 1, 0, 3, name.len() as u8];
        input.extend(name.as_bytes());
        input.extend(port.to_be_bytes());
        input.extend(&early);
        let (whole, whole_rest) = run(false, &NOBODY, &input);

        let mut handshake = Handshake::new(false);
        let mut outputs = Vec::new();
        let mut sizes = cut.iter().cycle();
        let mut left = &input[..];
        while !left.is_empty() {
            let (piece, rest) = left.split_at((*sizes.next().unwrap()).min(left.len()));
            handshake.receive(piece);
            left = rest;
            loop {
                match handshake.poll_output() {
                    Ok(Output::Wait) => break,
                    output => outputs.push(output),
                }
            }
        }
        prop_assert_eq!(outputs, whole);
        prop_assert_eq!(handshake.into_rest(), whole_rest);
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_grow(data in proptest::collection::vec(any::<u8>(), 0..1500)) {
        fuzz(&data);
    }
}
