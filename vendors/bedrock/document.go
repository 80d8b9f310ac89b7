package bedrock

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
)

// rawDocument is JSON text in the place of one of the SDK's documents. Those are made of Go values, which lose the order
// of members; the SDK writes what MarshalSmithyDocument returns as it is.
type rawDocument struct {
	document.Interface // for the unexported method that makes it one

	text json.RawMessage
}

func newDocument(text json.RawMessage) document.Interface {
	return rawDocument{document.NewLazyDocument(nil), text}
}

// MarshalSmithyDocument implements document.Marshaler of smithy.
func (d rawDocument) MarshalSmithyDocument() ([]byte, error) { return d.text, nil }
