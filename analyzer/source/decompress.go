package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Magic numbers of the compressed forms that are read.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// frameHeader is the length before each message of the Collector's file
// exporter, big endian.
const frameHeader = 4

// decompress returns the plain bytes of r, whatever the name of the file is.
// Close must be called on the result.
func decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	head, err := br.Peek(frameHeader + len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("bad gzip data: %w", err)
		}
		return zr, nil
	case bytes.HasPrefix(head, zstdMagic):
		zr, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("bad zstd data: %w", err)
		}
		return zr.IOReadCloser(), nil
	case len(head) > frameHeader && bytes.HasPrefix(head[frameHeader:], zstdMagic):
		zr, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("bad zstd data: %w", err)
		}
		return &framedZstd{src: br, zr: zr}, nil
	}
	return io.NopCloser(br), nil
}

// framedZstd reads what the Collector's file exporter writes with
// `compression: zstd`: messages that are each compressed alone and preceded by
// their length. It gives the messages in the forms that are known without
// compression: JSON as one document a line, protobuf with lengths before it.
type framedZstd struct {
	src   *bufio.Reader
	zr    *zstd.Decoder
	frame io.LimitedReader // the compressed message being read
	state framedState
	head  []byte // what is to be returned first
	whole bytes.Buffer
}

// maxMessage is the length up to which protobuf messages exist.
const maxMessage = math.MaxInt32

type framedState uint8

const (
	betweenFrames framedState = iota
	inJSON                    // the decoder has more of a JSON message
)

// Read implements io.Reader.
func (f *framedZstd) Read(p []byte) (int, error) {
	for {
		if len(f.head) > 0 {
			n := copy(p, f.head)
			f.head = f.head[n:]
			return n, nil
		}
		if f.state == inJSON {
			n, err := f.zr.Read(p)
			if n > 0 {
				return n, nil
			}
			if !errors.Is(err, io.EOF) {
				return 0, cutShort(err, f.frame.N)
			}
			f.state = betweenFrames
			f.head = []byte("\n")
			continue
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
}

// next begins the next message.
func (f *framedZstd) next() error {
	// What the decoder left of the last frame is no part of its message.
	if _, err := io.Copy(io.Discard, &f.frame); err != nil {
		return err
	}
	var length [frameHeader]byte
	if _, err := io.ReadFull(f.src, length[:]); err != nil {
		return err // io.EOF exactly between messages
	}
	f.frame = io.LimitedReader{R: f.src, N: int64(binary.BigEndian.Uint32(length[:]))}
	if err := f.zr.Reset(&f.frame); err != nil {
		return fmt.Errorf("bad zstd data: %w", err)
	}
	var first [1]byte
	switch _, err := io.ReadFull(f.zr, first[:]); {
	case errors.Is(err, io.EOF):
		return nil // an empty message
	case err != nil:
		return cutShort(err, f.frame.N)
	}
	if first[0] == '{' || first[0] == '[' {
		f.head = []byte{first[0]}
		f.state = inJSON
		return nil
	}
	// A length comes before protobuf, so the message must be known whole.
	f.whole.Reset()
	f.whole.Write(make([]byte, frameHeader))
	f.whole.WriteByte(first[0])
	switch n, err := io.Copy(&f.whole, io.LimitReader(f.zr, maxMessage)); {
	case err != nil:
		return cutShort(err, f.frame.N)
	case n == maxMessage:
		return errors.New("a compressed message is longer than any protobuf message")
	}
	f.head = f.whole.Bytes()
	binary.BigEndian.PutUint32(f.head, uint32(len(f.head)-frameHeader))
	return nil
}

// cutShort tells data that ends early from data that is wrong: the decoder gets
// to the end of the file while its frame should have more.
func cutShort(err error, missing int64) error {
	if missing > 0 || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("bad zstd data: %w", err)
}

// Close implements io.Closer.
func (f *framedZstd) Close() error {
	f.zr.Close()
	return nil
}

// stream is the decompressed content of a file. What was looked at ahead can be
// read again. It remembers how reading ended.
type stream struct {
	src     io.Reader
	pending []byte
	left    int64 // bytes that may still come before --max-bytes is reached
	max     int64
	err     error // io.EOF, or what ended the stream
}

// bytesError is the refusal of a file that is too long.
type bytesError int64

func (max bytesError) Error() string {
	return fmt.Sprintf("more than %d bytes after decompression; raise --max-bytes if this is meant", int64(max))
}

func newStream(src io.Reader, max int64) *stream {
	return &stream{src: src, left: max, max: max}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.pending) > 0 {
		n := copy(p, s.pending)
		if s.pending = s.pending[n:]; len(s.pending) == 0 {
			s.pending = nil // looking ahead can have taken much memory
		}
		return n, nil
	}
	return s.fill(p)
}

// fill reads from the source, one byte more than the limit to see its excess.
func (s *stream) fill(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if int64(len(p)) > s.left+1 {
		p = p[:s.left+1]
	}
	n, err := s.src.Read(p)
	if int64(n) > s.left {
		n, err = int(s.left), bytesError(s.max)
	}
	s.left -= int64(n)
	s.err = err
	return n, err
}

// peek reads ahead until there are n bytes or the stream ends, and returns all
// that is ahead.
func (s *stream) peek(n int) []byte {
	for len(s.pending) < n && s.err == nil {
		if cap(s.pending)-len(s.pending) < 1<<12 {
			s.pending = append(make([]byte, 0, max(2*cap(s.pending), min(n, 1<<16))), s.pending...)
		}
		k, _ := s.fill(s.pending[len(s.pending):cap(s.pending)])
		s.pending = s.pending[:len(s.pending)+k]
	}
	return s.pending
}

// unread puts data before what comes next. It takes data over.
func (s *stream) unread(data []byte) {
	s.pending = append(data, s.pending...)
}

// failed tells whether the stream ended before its proper end.
func (s *stream) failed() bool { return s.err != nil && !errors.Is(s.err, io.EOF) }

// failure returns what ended the stream early: nil at its proper end, and cut
// for input that stops inside compressed data.
func (s *stream) failure() (err error, cut bool) {
	switch {
	case !s.failed():
		return nil, false
	case errors.Is(s.err, io.ErrUnexpectedEOF):
		return nil, true
	}
	return withoutPath(s.err), false
}
