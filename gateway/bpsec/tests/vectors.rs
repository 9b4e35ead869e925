//! The examples of RFC 9173, appendix A: the bytes decode, verify and decrypt, and this
//! crate produces the same bytes from the same keys.

use bytes::Bytes;
use underpass_bpsec::confidentiality::{self, Variant};
use underpass_bpsec::integrity::{self, Hash, Running};
use underpass_bpsec::{
    BCB_AES_GCM, BIB_HMAC_SHA2, Failure, Header, Key, Scope, SecurityBlock, Target, Value,
    canonical,
};
use underpass_bundle::wire::{
    Block, CodePoints, Content, CrcKind, DecodeLimits, Eid, block_type, encode_primary, inspect,
    ipn,
};

/// A.1: a BIB on the payload block, without additional scope.
const SIMPLE_INTEGRITY: &str = "9f88070000820282010282028202018202820201820018281a000f4240850b02\
    0000585681010101820282020182820107820300818182015840\
    3bdc69b3a34a2b5d3a8554368bd1e808f606219d2a10a846eae3886ae4ecc83c4ee550fdfb1cc636b904e2f1a73e3\
    03dcd4b6ccece003e95e8164dcc89a156e185010100005823526561647920746f2067656e657261746520612033\
    322d62797465207061796c6f6164ff";

/// A.2: a BCB on the payload block, with a wrapped key.
const SIMPLE_CONFIDENTIALITY: &str = "9f88070000820282010282028202018202820201820018281a000f4240\
    850c02010058508101020182028202018482014c5477656c76653132313231328202018203581869c411276fecddc4\
    780df42c8a2af89296fabf34d7fae7008204008181820150efa4b5ac0108e3816c5606479801bc04\
    850101000058233a09c1e63fe23a7f66a59c7303837241e070b02619fc59c5214a22f08cd70795e73e9aff";

/// A.3: a relay's BIB on primary and bundle age block, and a BCB on the payload block.
const TWO_SOURCES: &str = "9f88070000820282010282028202018202820201820018281a000f4240850b0300\
    00585c8200020101820282030082820105820300828182015820cac6ce8e4c5dae57\
    988b757e49a6dd1431dc04763541b2845098265bc817241b81820158203ed614c0d9\
    7f49b3633627779aa18a338d212bf3c92b97759d9739cd50725596850c0401005834\
    8101020182028202018382014c5477656c7665313231323132820201820400818182\
    0150efa4b5ac0108e3816c5606479801bc0485070200004319012c85010100005823\
    3a09c1e63fe23a7f66a59c7303837241e070b02619fc59c5214a22f08cd70795e73e9aff";

/// A.4: a BIB on the payload block, and a BCB on both, with all scope flags.
const FULL_SCOPE: &str = "9f88070000820282010282028202018202820201820018281a000f4240850b0300\
    005846438ed6208eb1c1ffb94d952175167df0902902064a2983910c4fb2340790bf\
    420a7d1921d5bf7c4721e02ab87a93ab1e0b75cf62e4948727c8b5dae46ed2af0543\
    9b88029191850c0201005849820301020182028202018382014c5477656c76653132\
    313231328202038204078281820150220ffc45c8a901999ecc60991dd78b29818201\
    50d2c51cb2481792dae8b21d848cede99b8501010000582390eab6457593379298a8\
    724e16e61f837488e127212b59ac91f8a86287b7d07630a122ff";

const PAYLOAD: &[u8] = b"Ready to generate a 32-byte payload";
const HMAC_KEY: &str = "1a2b1a2b1a2b1a2b1a2b1a2b1a2b1a2b";
const WRAPPING_KEY: &str = "6162636465666768696a6b6c6d6e6f70";
const CONTENT_KEY: &str = "71776572747975696f70617364666768";
const IV: [u8; 12] = *b"Twelve121212";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(pair, 16).unwrap()
    });
    pairs.collect()
}

fn key(hex: &str) -> Key {
    Key::parse(hex).unwrap()
}

/// The parts of an example.
struct Example {
    primary: Vec<u8>,
    blocks: Vec<Block>,
}

impl Example {
    fn read(hex: &str) -> Example {
        let raw = Bytes::from(bytes(hex));
        let seen = inspect(&raw, &DecodeLimits::default(), &CodePoints::default());
        assert_eq!(seen.problem, None);
        let (primary, crc) = seen.primary.unwrap();
        assert_eq!(crc, CrcKind::None);
        let encoded = encode_primary(&primary, CrcKind::None);
        assert_eq!(
            raw[1..=encoded.len()],
            encoded,
            "it is deterministic already"
        );
        assert_eq!(canonical(&encoded).unwrap(), encoded);
        Example {
            primary: encoded.to_vec(),
            blocks: seen.blocks,
        }
    }

    fn of_kind(&self, kind: u64) -> &Block {
        self.blocks.iter().find(|block| block.kind == kind).unwrap()
    }
}

fn header(block: &Block) -> Header {
    Header {
        kind: block.kind,
        number: block.number,
        flags: block.flags,
    }
}

/// Parses a security block, and checks that it is encoded as it came.
fn security(content: &[u8], context: i128, source: &Eid) -> SecurityBlock {
    let block = SecurityBlock::parse(content).unwrap();
    assert_eq!(block.encode(), content);
    assert_eq!((block.context, &block.source), (context, source));
    block
}

/// A target as it is decrypted in memory, and with the same outcome in two passes, piece by piece.
fn decrypted(
    block: &SecurityBlock,
    place: usize,
    keys: &[Key],
    primary: &[u8],
    target: Header,
    security: Header,
    content: &[u8],
) -> Result<Vec<u8>, Failure> {
    let whole = confidentiality::decrypt(block, place, keys, primary, target, security, content);
    for size in [1, 7, 16, 100] {
        let of_target = (target, content.len() as u64);
        let begun =
            confidentiality::Running::begin((block, place), keys, primary, of_target, security);
        let plain = begun.and_then(|mut running| {
            content.chunks(size).for_each(|piece| running.take(piece));
            let mut plain = content[..running.plain_bytes() as usize].to_vec();
            let mut decrypting = running.finish()?;
            plain
                .chunks_mut(size)
                .for_each(|piece| decrypting.apply(piece));
            Ok(plain)
        });
        assert_eq!(plain, whole, "in pieces of {size} bytes");
    }
    whole
}

/// Encrypts a target in place, and with the same outcome piece by piece; returns its result.
fn encrypted(
    (variant, key): (Variant, &Key),
    scope: Scope,
    primary: &[u8],
    target: Header,
    security: Header,
    content: &mut [u8],
) -> Vec<(u64, Value)> {
    let (mut pieces, bytes) = (content.to_vec(), content.len() as u64);
    let begun = confidentiality::begin_to_encrypt(
        (variant, key),
        IV,
        scope,
        primary,
        target,
        security,
        bytes,
    );
    let mut encrypting = begun.unwrap();
    pieces
        .chunks_mut(7)
        .for_each(|piece| encrypting.apply(piece));
    let cipher = variant.cipher(key).unwrap();
    let result =
        confidentiality::encrypt(&cipher, IV, scope, primary, target, security, content).unwrap();
    assert_eq!(pieces, content);
    assert_eq!(confidentiality::result(&encrypting.finish()), result);
    result
}

#[test]
fn a_1_simple_integrity() {
    let example = Example::read(SIMPLE_INTEGRITY);
    let bib = example.of_kind(block_type::BIB);
    let block = security(&bib.data, BIB_HMAC_SHA2, &ipn(2, 1));
    let payload = example.of_kind(block_type::PAYLOAD);
    assert_eq!(payload.data, PAYLOAD);
    let pieces = [payload.data.slice(..10), payload.data.slice(10..)];
    let target = Target::Block(header(payload), Content::Here(&pieces));
    let verify =
        |keys: &[Key]| integrity::verify(&block, 0, keys, &example.primary, &target, header(bib));
    assert_eq!(verify(&[key(CONTENT_KEY), key(HMAC_KEY)]), Ok(()));
    assert_eq!(verify(&[key(CONTENT_KEY)]), Err(Failure::Failed));

    let (hash, scope) = (Hash::Sha512, Scope(0));
    let signed = integrity::sign(
        &key(HMAC_KEY),
        hash,
        scope,
        &example.primary,
        &target,
        header(bib),
    );
    let parameters = integrity::parameters(hash, scope);
    let results = vec![signed.unwrap()];
    let made = SecurityBlock::new(vec![1], BIB_HMAC_SHA2, ipn(2, 1), parameters, results);
    assert_eq!(made, block);
}

#[test]
fn a_payload_is_verified_as_it_comes() {
    let example = Example::read(SIMPLE_INTEGRITY);
    let bib = example.of_kind(block_type::BIB);
    let block = security(&bib.data, BIB_HMAC_SHA2, &ipn(2, 1));
    let payload = example.of_kind(block_type::PAYLOAD);
    let verify = |keys: &[Key], bytes: usize, pieces: &[&[u8]]| {
        let target = (header(payload), bytes as u64);
        let begun = Running::begin((&block, 0), keys, &example.primary, target, header(bib));
        let mut running = begun.unwrap();
        pieces.iter().for_each(|piece| running.take(piece));
        running.finish()
    };
    let keys = [key(CONTENT_KEY), key(HMAC_KEY)];
    let (all, whole) = (PAYLOAD.len(), [&PAYLOAD[..10], b"", &PAYLOAD[10..]]);
    assert_eq!(verify(&keys, all, &whole), Ok(()));
    for failed in [
        verify(&keys[..1], all, &whole),
        verify(&keys, all, &whole[..2]),
        verify(&keys, all - 1, &[&PAYLOAD[..all - 1]]),
        verify(&[], all, &whole),
    ] {
        assert_eq!(failed, Err(Failure::Failed));
    }
}

#[test]
fn a_2_simple_confidentiality_with_key_wrap() {
    let example = Example::read(SIMPLE_CONFIDENTIALITY);
    let bcb = example.of_kind(block_type::BCB);
    let block = security(&bcb.data, BCB_AES_GCM, &ipn(2, 1));
    let payload = example.of_kind(block_type::PAYLOAD);
    let decrypt = |keys: &[Key]| {
        let (target, security) = (header(payload), header(bcb));
        let primary = &example.primary;
        decrypted(&block, 0, keys, primary, target, security, &payload.data)
    };
    assert_eq!(
        decrypt(&[key(HMAC_KEY), key(WRAPPING_KEY)]).unwrap(),
        PAYLOAD
    );
    assert_eq!(decrypt(&[key(CONTENT_KEY)]), Err(Failure::Failed));

    let wrapped = key(WRAPPING_KEY).wrap_key(&key(CONTENT_KEY)).unwrap();
    let variant = Variant::Aes128;
    let mut content = PAYLOAD.to_vec();
    let result = encrypted(
        (variant, &key(CONTENT_KEY)),
        Scope(0),
        &example.primary,
        header(payload),
        header(bcb),
        &mut content,
    );
    assert_eq!(content, payload.data);
    let parameters = confidentiality::parameters(IV, variant, Some(&wrapped), Scope(0));
    let made = SecurityBlock::new(vec![1], BCB_AES_GCM, ipn(2, 1), parameters, vec![result]);
    assert_eq!(made, block);
}

#[test]
fn a_3_blocks_from_two_sources() {
    let example = Example::read(TWO_SOURCES);
    let bib = example.of_kind(block_type::BIB);
    let block = security(&bib.data, BIB_HMAC_SHA2, &ipn(3, 0));
    assert_eq!(block.targets, [0, 2]);
    let age = example.of_kind(block_type::BUNDLE_AGE);
    let pieces = [age.data.clone()];
    for (place, target) in [
        Target::Primary,
        Target::Block(header(age), Content::Here(&pieces)),
    ]
    .iter()
    .enumerate()
    {
        let verify = |place| {
            let keys = [key(HMAC_KEY)];
            integrity::verify(&block, place, &keys, &example.primary, target, header(bib))
        };
        assert_eq!(verify(place), Ok(()), "{place}");
        assert_eq!(verify(1 - place), Err(Failure::Failed), "{place}");
        let signed = integrity::sign(
            &key(HMAC_KEY),
            Hash::Sha256,
            Scope(0),
            &example.primary,
            target,
            header(bib),
        );
        assert_eq!(signed.unwrap(), block.results(place));
    }
    let bcb = example.of_kind(block_type::BCB);
    let block = security(&bcb.data, BCB_AES_GCM, &ipn(2, 1));
    let payload = example.of_kind(block_type::PAYLOAD);
    let decrypted = decrypted(
        &block,
        0,
        &[key(CONTENT_KEY)],
        &example.primary,
        header(payload),
        header(bcb),
        &payload.data,
    );
    assert_eq!(decrypted.unwrap(), PAYLOAD);
}

#[test]
fn a_4_full_scope() {
    let example = Example::read(FULL_SCOPE);
    let content_key = key(&CONTENT_KEY.repeat(2));
    let bcb = example.of_kind(block_type::BCB);
    let block = security(&bcb.data, BCB_AES_GCM, &ipn(2, 1));
    assert_eq!(block.targets, [3, 1]);
    let bib = example.of_kind(block_type::BIB);
    let payload = example.of_kind(block_type::PAYLOAD);
    let decrypt = |place, target: &Block| {
        let (keys, primary) = ([content_key.clone()], &example.primary);
        let (header_of_target, security) = (header(target), header(bcb));
        decrypted(
            &block,
            place,
            &keys,
            primary,
            header_of_target,
            security,
            &target.data,
        )
    };
    let bib_content = decrypt(0, bib).unwrap();
    assert_eq!(decrypt(1, payload).unwrap(), PAYLOAD);
    assert_eq!(decrypt(0, payload), Err(Failure::Failed));

    let block = security(&bib_content, BIB_HMAC_SHA2, &ipn(2, 1));
    let pieces = [Bytes::from_static(PAYLOAD)];
    let target = Target::Block(header(payload), Content::Here(&pieces));
    let keys = [key(HMAC_KEY)];
    let (primary, security) = (&example.primary, header(bib));
    assert_eq!(
        integrity::verify(&block, 0, &keys, primary, &target, security),
        Ok(())
    );
    let signed = integrity::sign(
        &keys[0],
        Hash::Sha384,
        Scope::ALL,
        primary,
        &target,
        security,
    );
    assert_eq!(signed.unwrap(), block.results(0));

    let mut content = bib_content.clone();
    let result = encrypted(
        (Variant::Aes256, &content_key),
        Scope::ALL,
        primary,
        header(bib),
        header(bcb),
        &mut content,
    );
    assert_eq!(content, bib.data);
    assert!(matches!(&result[..], [(1, Value::Bytes(tag))] if tag.len() == 16));
}

#[test]
fn a_wrapped_key_of_an_hmac_is_unwrapped() {
    let example = Example::read(SIMPLE_INTEGRITY);
    let bib = example.of_kind(block_type::BIB);
    let payload = example.of_kind(block_type::PAYLOAD);
    let pieces = [payload.data.clone()];
    let target = Target::Block(header(payload), Content::Here(&pieces));
    let sign = |hash| {
        let signer = key(HMAC_KEY);
        integrity::sign(
            &signer,
            hash,
            Scope::ALL,
            &example.primary,
            &target,
            header(bib),
        )
        .unwrap()
    };
    let wrapped = key(WRAPPING_KEY).wrap_key(&key(HMAC_KEY)).unwrap();
    // RFC 9173 §3.3: absent parameters have their defaults.
    let parameters = vec![(2, Value::Bytes(wrapped))];
    let signed = sign(Hash::Sha384);
    let block = SecurityBlock::new(vec![1], BIB_HMAC_SHA2, ipn(2, 1), parameters, vec![signed]);
    let verify =
        |keys: &[Key]| integrity::verify(&block, 0, keys, &example.primary, &target, header(bib));
    assert_eq!(verify(&[key(WRAPPING_KEY)]), Ok(()));
    assert_eq!(verify(&[key(HMAC_KEY)]), Err(Failure::Failed));
    // A key of another length, usable for HMAC only, does not stop the next key from
    // being tried.
    let no_aes_key = Key::new(vec![1; 48]);
    assert_eq!(verify(&[no_aes_key, key(WRAPPING_KEY)]), Ok(()));
}

#[test]
fn a_tag_at_the_end_of_the_ciphertext_is_found() {
    let example = Example::read(SIMPLE_CONFIDENTIALITY);
    let bcb = example.of_kind(block_type::BCB);
    let mut block = SecurityBlock::parse(&bcb.data).unwrap();
    let payload = example.of_kind(block_type::PAYLOAD);
    let [(1, Value::Bytes(tag))] = block.results(0) else {
        panic!("{block:?}");
    };
    let content = [&payload.data[..], tag].concat();
    let parameters = block.parameters().to_vec();
    block = SecurityBlock::new(
        vec![1],
        BCB_AES_GCM,
        ipn(2, 1),
        parameters,
        vec![Vec::new()],
    );
    let decrypt = |content: &[u8]| {
        let (keys, primary) = ([key(WRAPPING_KEY)], &example.primary);
        decrypted(
            &block,
            0,
            &keys,
            primary,
            header(payload),
            header(bcb),
            content,
        )
    };
    assert_eq!(decrypt(&content).unwrap(), PAYLOAD);
    assert_eq!(decrypt(&content[1..]), Err(Failure::Failed));
    assert_eq!(decrypt(&[0; 15]), Err(Failure::Failed));
}
