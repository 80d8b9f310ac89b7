package bedrock

import (
	"encoding/json"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/ai-process/ktms/vendors/claude"
)

// cachePoint reads cache_control as Claude's own API spells it; nil if it says something else.
func cachePoint(text json.RawMessage) *types.CachePointBlock {
	var control struct {
		Type string `json:"type"`
		TTL  string `json:"ttl"`
	}
	if json.Unmarshal(text, &control) != nil || control.Type != "ephemeral" {
		return nil
	}
	ttl := types.CacheTTL(control.TTL)
	if ttl != "" && ttl != types.CacheTTLFiveMinutes && ttl != types.CacheTTLOneHour {
		return nil
	}
	return &types.CachePointBlock{Type: types.CachePointTypeDefault, Ttl: ttl}
}

// breakpoints holds the caller's cache points to the vendor's rules: how many, and in which order.
func (e *encoder) breakpoints() {
	var points []*types.CachePointBlock
	var places []claude.Place
	add := func(p *types.CachePointBlock, head bool) {
		place := claude.Place{Head: head, Set: claude.FiveMinutes}
		if p.Ttl == types.CacheTTLOneHour {
			place.Set = claude.Hour
		}
		points, places = append(points, p), append(places, place)
	}
	if e.out.ToolConfig != nil {
		for _, t := range e.out.ToolConfig.Tools {
			if p, ok := t.(*types.ToolMemberCachePoint); ok {
				add(&p.Value, true)
			}
		}
	}
	for _, b := range e.out.System {
		if p, ok := b.(*types.SystemContentBlockMemberCachePoint); ok {
			add(&p.Value, true)
		}
	}
	for _, m := range e.out.Messages {
		for _, b := range m.Content {
			if p, ok := b.(*types.ContentBlockMemberCachePoint); ok {
				add(&p.Value, false)
			}
		}
	}
	if !claude.Trim(places) {
		return
	}
	e.Drop(cacheControl)
	gone := map[*types.CachePointBlock]bool{}
	for i, p := range points {
		gone[p] = places[i].Set == claude.None
	}
	if e.out.ToolConfig != nil {
		e.out.ToolConfig.Tools = slices.DeleteFunc(e.out.ToolConfig.Tools, func(t types.Tool) bool {
			p, ok := t.(*types.ToolMemberCachePoint)
			return ok && gone[&p.Value]
		})
	}
	e.out.System = slices.DeleteFunc(e.out.System, func(b types.SystemContentBlock) bool {
		p, ok := b.(*types.SystemContentBlockMemberCachePoint)
		return ok && gone[&p.Value]
	})
	for i := range e.out.Messages {
		m := &e.out.Messages[i]
		m.Content = slices.DeleteFunc(m.Content, func(b types.ContentBlock) bool {
			p, ok := b.(*types.ContentBlockMemberCachePoint)
			return ok && gone[&p.Value]
		})
	}
}
