package rpc_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// BenchmarkGRPCPort measures the cost of a call and the memory of a connection, on a separate port
// and on the port of the API. Both figures include the client.
func BenchmarkGRPCPort(b *testing.B) {
	for _, shared := range []bool{false, true} {
		name := map[bool]string{false: "own", true: "shared"}[shared]
		b.Run(name+"/call", func(b *testing.B) {
			at := openPort(b, shared)
			conn := dialPort(b, at)
			client := apb1.NewA2AServiceClient(conn)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, err := client.GetExtendedAgentCard(b.Context(), &apb1.GetExtendedAgentCardRequest{})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
		b.Run(name+"/connection", func(b *testing.B) {
			at := openPort(b, shared)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				_, err := apb1.NewA2AServiceClient(dialPort(b, at)).GetExtendedAgentCard(b.Context(),
					&apb1.GetExtendedAgentCardRequest{})
				if err != nil {
					b.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/float64(b.N),
				"B/conn")
		})
	}
}

func openPort(b *testing.B, shared bool) (address string) {
	b.Helper()
	s, err := rpc.New(rpc.Config{
		Authenticator: auth.Anonymous{}, V03: v03.Codec{}, V1: v1.Codec{}, PublicURL: "http://h",
		Agents: []*a2a.Agent{{Name: "a", Default: true, Extended: &a2a.Card{Name: "a"}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	calls := s.NewGRPC(v1.Codec{})
	serve := calls.Serve
	if shared {
		s.Share(calls)
		serve = s.Serve
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, time.Second) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return l.Addr().String()
}

func dialPort(b *testing.B, at string) *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}
