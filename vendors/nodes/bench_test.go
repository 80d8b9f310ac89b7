package nodes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
)

// BenchmarkVisit is what this replica does for a call before and after the engine has it, with the pool in memory: the plan
// asks whether somebody is there, a node is chosen, and its slot is given back.
func BenchmarkVisit(b *testing.B) {
	for _, size := range []int{1, 12, 50} {
		b.Run(fmt.Sprintf("%d nodes", size), func(b *testing.B) {
			machines := memory.NewNodes(memory.NodesOptions{})
			for i := range size {
				if err := machines.Register(b.Context(), pool.NodeSpec{ID: fmt.Sprintf("node-%02d", i), Engine: "vllm", Endpoint: "http://192.0.2.1",
					KeyID: "k", MaxConcurrent: 8}, pool.NodeReport{Level: selection.FullLevel, Models: []pool.NodeModel{{ID: "m", Warm: true}}}); err != nil {
					b.Fatal(err)
				}
			}
			v := New(Options{Nodes: machines, TTL: time.Hour, Policy: selection.DefaultPolicy()})
			req := &ktmsv1.GenerateTextRequest{BaseSystemInstruction: strings.Repeat("be kind ", 250),
				Messages: []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: strings.Repeat("go on ", 300)}}}
			b.ReportAllocs()
			for b.Loop() {
				if why := v.Absent("m"); why != "" {
					b.Fatal(why)
				}
				t := vendors.Target{Vendor: vendors.Local, Model: "m", Visit: vendors.Visit{Tenant: "t", PromptTokens: 1000}}
				visit, failed := v.enter(context.Background(), t, wantText(t, req))
				if failed != nil {
					b.Fatal(failed)
				}
				visit.succeeded(0)
				visit.leave()
				v.tasks.running.Wait()
			}
		})
	}
}

// BenchmarkAbsent is what each candidate of a plan costs where machines report many models: no more than where they report one.
func BenchmarkAbsent(b *testing.B) {
	for _, models := range []int{1, 1000} {
		b.Run(fmt.Sprintf("50 nodes of %d models", models), func(b *testing.B) {
			machines := memory.NewNodes(memory.NodesOptions{})
			report := pool.NodeReport{Level: selection.FullLevel, Models: []pool.NodeModel{{ID: "m", Warm: true}}}
			for i := range models - 1 {
				report.Models = append(report.Models, pool.NodeModel{ID: fmt.Sprintf("another-model:%d", i)})
			}
			for i := range 50 {
				if err := machines.Register(b.Context(), pool.NodeSpec{ID: fmt.Sprintf("node-%02d", i), MaxConcurrent: 8}, report); err != nil {
					b.Fatal(err)
				}
			}
			v := New(Options{Nodes: machines, TTL: time.Hour, Policy: selection.DefaultPolicy()})
			b.ReportAllocs()
			for b.Loop() {
				if why := v.Absent("m"); why != "" {
					b.Fatal(why)
				}
			}
		})
	}
}
