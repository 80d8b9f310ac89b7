package selection_test

import (
	"fmt"
	"testing"

	"github.com/ai-process/ktms/pool/selection"
)

// BenchmarkPick is the whole arithmetic of one request, for a fleet of each size.
func BenchmarkPick(b *testing.B) {
	for _, size := range []int{12, 50} {
		nodes := make([]selection.Node, size)
		for i := range nodes {
			nodes[i] = node(fmt.Sprintf("node-%02d", i), func(n *selection.Node) {
				n.Models[0].TokensPerSecond, n.Models[0].TTFTSeconds = float64(20+i), 0.1+0.01*float64(i%7)
				n.Models[0].SecondsPerToken = 0.0001 * float64(1+i%5)
			})
		}
		currents := make([]int64, size)
		b.Run(fmt.Sprintf("%d nodes", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				candidates, _ := selection.Prepare(nodes, selection.Query{Model: "m", PromptTokens: 1000, MaxOutputTokens: 500})
				for i := range candidates {
					candidates[i].InFlight, candidates[i].Current = int64(i%4), currents[i]
				}
				choice := selection.Choose(candidates, 1000, selection.DefaultPolicy())
				if choice.Chosen < 0 {
					b.Fatal("no node is free")
				}
				for i, w := range choice.Weighed {
					currents[i] = w.Current
				}
			}
		})
	}
}

// BenchmarkPrefixes is what the keys of a long prompt cost.
func BenchmarkPrefixes(b *testing.B) {
	p := prompt(text(2, 100_000), text(3, 500))
	b.SetBytes(100_900)
	for b.Loop() {
		selection.Prefixes(p)
	}
}
