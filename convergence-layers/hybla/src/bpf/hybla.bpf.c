/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * Two congestion controls of the kernel's TCP: hybla_bpf, TCP Hybla with pacing
 * and Hoe's first ssthresh, and hybla_dama, which knows its allocated rate.
 * docs/congestion-control.md explains both.
 *
 * Both have cong_control, which the kernel takes to mean that window, pacing and
 * recovery are theirs: it then neither shrinks the window after idle time nor
 * paces by its own figures.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "hybla_arithmetic.h"
#include "connection.h"
#include "start.h"
#include "window.h"
#include "allocation.h"

/* The verifier accepts only GPL-compatible programs as congestion controls. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("struct_ops")
void BPF_PROG(hybla_init, struct sock *sk)
{
	begin(sk);
}

SEC("struct_ops")
void BPF_PROG(hybla_cong_control, struct sock *sk)
{
	control_window(sk);
}

SEC("struct_ops")
u32 BPF_PROG(hybla_ssthresh, struct sock *sk)
{
	return halve(sk);
}

SEC("struct_ops")
u32 BPF_PROG(hybla_undo_cwnd, struct sock *sk)
{
	return undo(sk);
}

SEC("struct_ops")
void BPF_PROG(hybla_set_state, struct sock *sk, u8 state)
{
	note_state(sk, state);
}

SEC("struct_ops")
void BPF_PROG(hybla_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	note_round_trip(sk, sample->rtt_us);
}

SEC("struct_ops")
u32 BPF_PROG(hybla_min_tso_segs, struct sock *sk)
{
	return burst_for(sk);
}

SEC("struct_ops")
void BPF_PROG(dama_init, struct sock *sk)
{
	begin(sk);
	if (allocated(sk))
		follow_allocation(sk);
}

SEC("struct_ops")
void BPF_PROG(dama_cong_control, struct sock *sk)
{
	if (allocated(sk)) {
		guard(sk);
		follow_allocation(sk);
	} else {
		control_window(sk);
	}
}

SEC("struct_ops")
u32 BPF_PROG(dama_ssthresh, struct sock *sk)
{
	return allocated(sk) ? tcp(sk)->snd_ssthresh : halve(sk);
}

SEC("struct_ops")
u32 BPF_PROG(dama_undo_cwnd, struct sock *sk)
{
	return allocated(sk) ? tcp(sk)->snd_cwnd : undo(sk);
}

/* A retransmission timeout has just set the window to one segment; the state
 * change that follows it raises the window again before anything is sent. */
SEC("struct_ops")
void BPF_PROG(dama_set_state, struct sock *sk, u8 state)
{
	note_state(sk, state);
	if (allocated(sk))
		follow_allocation(sk);
}

/* The first segment after idle time: the allocation may have changed meanwhile. */
SEC("struct_ops")
void BPF_PROG(dama_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START && allocated(sk))
		follow_allocation(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops hybla_bpf = {
	.init = (void *)hybla_init,
	.cong_control = (void *)hybla_cong_control,
	.ssthresh = (void *)hybla_ssthresh,
	.undo_cwnd = (void *)hybla_undo_cwnd,
	.set_state = (void *)hybla_set_state,
	.pkts_acked = (void *)hybla_pkts_acked,
	.min_tso_segs = (void *)hybla_min_tso_segs,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "hybla_bpf",
};

/* Restricted to CAP_NET_ADMIN, since it does not treat loss as a sign of
 * congestion. */
SEC(".struct_ops.link")
struct tcp_congestion_ops hybla_dama = {
	.init = (void *)dama_init,
	.cong_control = (void *)dama_cong_control,
	.ssthresh = (void *)dama_ssthresh,
	.undo_cwnd = (void *)dama_undo_cwnd,
	.set_state = (void *)dama_set_state,
	.cwnd_event = (void *)dama_cwnd_event,
	.pkts_acked = (void *)hybla_pkts_acked,
	.min_tso_segs = (void *)hybla_min_tso_segs,
	.name = "hybla_dama",
};
