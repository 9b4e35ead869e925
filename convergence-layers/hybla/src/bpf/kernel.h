/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * What the program reads of the kernel's types. The loader relocates each field
 * to where the running kernel keeps it (CO-RE), so order and gaps do not matter,
 * and no kernel's full headers need to be carried along.
 */
#ifndef HYBLA_KERNEL_H
#define HYBLA_KERNEL_H

typedef unsigned char __u8, u8;
typedef unsigned short __u16;
typedef unsigned int __u32, u32;
typedef unsigned long long __u64, u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32, s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32, __wsum;
typedef _Bool bool;

#define RELOCATED __attribute__((preserve_access_index))

enum {
	TCP_INFINITE_SSTHRESH = 0x7fffffff,
	TCP_CONG_NON_RESTRICTED = 1,
	SK_PACING_NONE = 0,
	SK_PACING_NEEDED = 1,
};

enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

enum tcp_ca_event {
	CA_EVENT_TX_START = 0,
};

struct sock {
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
} RELOCATED;

struct inet_sock {
	struct sock sk;
} RELOCATED;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[13];
} RELOCATED;

struct minmax_sample {
	u32 v;
} RELOCATED;

struct minmax {
	struct minmax_sample s[3];
} RELOCATED;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 mss_cache;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prr_out;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 max_packets_out;
	u32 data_segs_out;
	u32 snd_nxt;
	u32 snd_una;
	u32 srtt_us;
	u32 delivered;
	u64 tcp_mstamp;
	struct minmax rtt_min;
	u8 is_cwnd_limited : 1;
} RELOCATED;

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
} RELOCATED;

/* libbpf matches the members by name; those left out stay null. cong_control's
 * further arguments differ between kernels and are not used. */
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, u8 state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	char name[16];
	u32 flags;
};

#endif
