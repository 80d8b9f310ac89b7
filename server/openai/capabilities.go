package openai

import (
	"encoding/json"
	"net/http"

	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/vendors"
)

// capability is one model of GET /v1/capabilities.
type capability struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	OwnedBy      string            `json:"owned_by"`
	Capabilities []string          `json:"capabilities"`
	Fields       []fieldCapability `json:"fields"`
}

// fieldCapability is what becomes of one request field: native, translated, dropped or refused.
type fieldCapability struct {
	Field   string `json:"field"`
	Param   string `json:"param"`
	Support string `json:"support"`
	Note    string `json:"note,omitempty"`
}

// capabilities serves GET /v1/capabilities: before a call, what X-KTMS-Dropped-Params says after one.
func (h *handler) capabilities(w http.ResponseWriter, r *http.Request) {
	list := struct {
		Object string       `json:"object"`
		Data   []capability `json:"data"`
	}{Object: "list", Data: []capability{}}
	for _, m := range h.Gateway.Capabilities(caller.From(r.Context())) {
		c := capability{ID: m.Spec.GetId(), Object: "capabilities", OwnedBy: m.Spec.GetVendor(), Capabilities: m.Spec.GetCapabilities()}
		if c.Capabilities == nil {
			c.Capabilities = []string{}
		}
		c.Fields = []fieldCapability{}
		for _, f := range vendors.Fields() {
			support, says := m.Fields[f]
			if !says {
				continue
			}
			c.Fields = append(c.Fields, fieldCapability{string(f), f.Param(), support.How.String(), support.Note})
		}
		list.Data = append(list.Data, c)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		return // the caller is gone
	}
}
