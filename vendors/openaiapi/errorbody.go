package openaiapi

// ErrorBody is what stands under "error" in an answer that is one.
type ErrorBody struct {
	Message string
	Type    string
	Param   string // empty stands for null
	Code    string // empty stands for null; a number becomes its digits
	Extra   Members
}

// DecodeError finds the error in a body, whichever of the usual shapes it has: an object or a string under "error",
// the members themselves at the top (Mistral, older vLLM), {"detail": …} (FastAPI), {"message": …} (gateways in
// between), or any of them in an array. It returns nil when there is no error in it.
func DecodeError(data []byte) *ErrorBody {
	d := newDecoder(data, true)
	if d.kind() == '[' {
		d.enter()
		if !d.element() {
			return nil
		}
	}
	if d.kind() != '{' {
		return nil
	}
	start := d.pos
	d.enter()
	var found *ErrorBody
	var detail string
	for d.member() {
		switch string(d.name()) {
		case "error":
			found = d.errorValue()
		case "detail":
			if d.kind() == '"' {
				detail = unquote(d.quoted())
			} else {
				detail = string(d.raw())
			}
		default:
			d.skip()
		}
	}
	if found != nil && (d.err == nil || found.Message != "") {
		return found // also from a body that was cut after it
	}
	if d.err != nil {
		return nil
	}
	flat := newDecoder(d.data[start:], true)
	flat.enter()
	body := &ErrorBody{}
	flat.errorBody(body)
	switch {
	case body.Message != "":
		return body
	case detail != "":
		return &ErrorBody{Message: detail, Type: body.Type, Code: body.Code}
	}
	return nil
}

// errorValue reads the value of "error": nil when it is null, false or empty, as some servers say "no error".
func (d *decoder) errorValue() *ErrorBody {
	switch d.kind() {
	case 'n', 'f':
		d.skip()
		return nil
	case '"':
		if text := unquote(d.quoted()); text != "" {
			return &ErrorBody{Message: text}
		}
		return nil
	case '{':
		e := &ErrorBody{}
		d.enter()
		d.errorBody(e)
		return e
	default:
		return &ErrorBody{Message: string(d.raw())}
	}
}

func (d *decoder) errorBody(e *ErrorBody) {
	for d.member() {
		switch string(d.name()) {
		case "message":
			if d.kind() == '{' || d.kind() == '[' {
				e.Message = string(d.raw()) // Mistral nests what it found wrong
			} else {
				d.str(&e.Message, &e.Extra)
			}
		case "type":
			d.str(&e.Type, &e.Extra)
		case "param":
			d.str(&e.Param, &e.Extra)
		case "code":
			if isNumber(d.kind()) {
				e.Code = string(d.number())
			} else {
				d.str(&e.Code, &e.Extra)
			}
		default:
			d.keep(&e.Extra)
		}
	}
}

// AppendJSON appends {"error": …} with the four members that clients expect, null where there is nothing to say.
func (e *ErrorBody) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"error":`...)
	return append(e.appendValue(dst), '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (e *ErrorBody) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

func (e *ErrorBody) appendValue(dst []byte) []byte {
	dst = AppendString(append(dst, `{"message":`...), e.Message)
	dst = appendNullable(append(dst, `,"type":`...), e.Type)
	dst = appendNullable(append(dst, `,"param":`...), e.Param)
	dst = appendNullable(append(dst, `,"code":`...), e.Code)
	return append(e.Extra.appendTo(dst), '}')
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return AppendString(dst, s)
}
