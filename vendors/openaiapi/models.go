package openaiapi

import "strconv"

// Model is one entry of GET /v1/models.
type Model struct {
	ID      string
	Created int64
	OwnedBy string
	Extra   Members
}

// ModelList is the answer of GET /v1/models.
type ModelList struct {
	Data  []Model
	Extra Members
}

// DecodeModelList reads a list of models, leniently.
func DecodeModelList(data []byte) (*ModelList, error) {
	l := &ModelList{}
	d := newDecoder(data, true)
	if d.root() {
		for d.member() {
			switch string(d.name()) {
			case "object":
				d.skip()
			case "data":
				l.Data = nil
				if d.list("", &l.Extra) {
					for d.element() {
						if d.elementObject() {
							l.Data = append(l.Data, Model{})
							d.model(&l.Data[len(l.Data)-1])
						}
					}
				}
			default:
				d.keep(&l.Extra)
			}
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return l, nil
}

func (d *decoder) model(m *Model) {
	for d.member() {
		switch string(d.name()) {
		case "object":
			d.skip()
		case "id":
			d.str(&m.ID, &m.Extra)
		case "created":
			d.count(&m.Created, &m.Extra)
		case "owned_by":
			d.str(&m.OwnedBy, &m.Extra)
		default:
			d.keep(&m.Extra)
		}
	}
}

// AppendJSON appends the list; the object members are written by themselves.
func (l *ModelList) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i := range l.Data {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = l.Data[i].AppendJSON(dst)
	}
	return append(l.Extra.appendTo(append(dst, ']')), '}')
}

// AppendJSON appends the model.
func (m *Model) AppendJSON(dst []byte) []byte {
	dst = AppendString(append(dst, `{"id":`...), m.ID)
	dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), m.Created, 10)
	dst = AppendString(append(dst, `,"owned_by":`...), m.OwnedBy)
	return append(m.Extra.appendTo(dst), '}')
}
