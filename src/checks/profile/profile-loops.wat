;; The loops that profiling spends most time in, for profile-loops.ts. Addresses are bytes.
;;
;; 0x00000  numbers of a block (2,048 f64)
;; 0x04000  a hash table: keys (4,096 i32)
;; 0x08000  how often each came (4,096 i32), 0 if the slot is free
;; 0x0c000  the slots that have keys (1,025 i32)
;; 0x0d200  how many slots have keys (i32)
;; 0x0d204  numbers that are NaN, minus infinity, infinity (i32 each)
;; 0x0d210  the least and the greatest finite number, their sum, and what it was rounded by (f64 each)
;; 0x0e000  words of a block of rows (8,192 i32)
;; 0x16000  their hashes (2,048 i32)
(module
  (memory (export "memory") 2) ;; pages of 64 KiB

  ;; Counts the numbers [at, end) of the block by their keys, without the last `shift` bits. Returns `end`; or, as soon as
  ;; there are more than `bins` keys, the number after the one that is one too many.
  (func (export "countBlock") (param $at i32) (param $end i32) (param $shift i32) (param $bins i32) (result i32)
    (local $x f64) (local $word i32) (local $key i32) (local $slot i32) (local $count i32)
    (local $least f64) (local $greatest f64) (local $sum f64) (local $rest f64) (local $total f64) (local $part f64)
    (local.set $least (f64.load (i32.const 0xd210)))
    (local.set $greatest (f64.load (i32.const 0xd218)))
    (local.set $sum (f64.load (i32.const 0xd220)))
    (local.set $rest (f64.load (i32.const 0xd228)))
    (local.set $at (i32.shl (local.get $at) (i32.const 3)))
    (local.set $end (i32.shl (local.get $end) (i32.const 3)))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $x (f64.add (f64.load (local.get $at)) (f64.const 0))) ;; -0 becomes 0
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $word (i32.wrap_i64 (i64.shr_u (i64.reinterpret_f64 (local.get $x)) (i64.const 32))))
        (if (i32.eq (i32.and (local.get $word) (i32.const 0x7ff00000)) (i32.const 0x7ff00000))
          (then
            (local.set $slot
              (select (i32.const 0xd204)
                (select (i32.const 0xd20c) (i32.const 0xd208) (f64.gt (local.get $x) (f64.const 0)))
                (f64.ne (local.get $x) (local.get $x))))
            (i32.store (local.get $slot) (i32.add (i32.load (local.get $slot)) (i32.const 1)))
            (br $next)))

        (if (f64.lt (local.get $x) (local.get $least)) (then (local.set $least (local.get $x))))
        (if (f64.gt (local.get $x) (local.get $greatest)) (then (local.set $greatest (local.get $x))))
        (local.set $total (f64.add (local.get $sum) (local.get $x)))
        (local.set $part (f64.sub (local.get $total) (local.get $sum)))
        (local.set $rest
          (f64.add (local.get $rest)
            (f64.add
              (f64.sub (local.get $sum) (f64.sub (local.get $total) (local.get $part)))
              (f64.sub (local.get $x) (local.get $part)))))
        (local.set $sum (local.get $total))

        (local.set $key
          (i32.shr_u
            (i32.xor (local.get $word)
              (i32.or (i32.shr_s (local.get $word) (i32.const 31)) (i32.const 0x80000000)))
            (local.get $shift)))
        (local.set $slot
          (i32.shl (i32.shr_u (i32.mul (local.get $key) (i32.const 0x9e3779b1)) (i32.const 20)) (i32.const 2)))
        (loop $closer
          (local.set $count (i32.load offset=0x8000 (local.get $slot)))
          (if (local.get $count)
            (then
              (if (i32.ne (i32.load offset=0x4000 (local.get $slot)) (local.get $key))
                (then
                  (local.set $slot (i32.and (i32.add (local.get $slot) (i32.const 4)) (i32.const 0x3ffc)))
                  (br $closer))))))
        (i32.store offset=0x8000 (local.get $slot) (i32.add (local.get $count) (i32.const 1)))
        (br_if $next (local.get $count))

        (i32.store offset=0x4000 (local.get $slot) (local.get $key))
        (local.set $count (i32.load (i32.const 0xd200)))
        (i32.store offset=0xc000 (i32.shl (local.get $count) (i32.const 2)) (i32.shr_u (local.get $slot) (i32.const 2)))
        (i32.store (i32.const 0xd200) (i32.add (local.get $count) (i32.const 1)))
        (br_if $next (i32.lt_u (local.get $count) (local.get $bins)))))
    (f64.store (i32.const 0xd210) (local.get $least))
    (f64.store (i32.const 0xd218) (local.get $greatest))
    (f64.store (i32.const 0xd220) (local.get $sum))
    (f64.store (i32.const 0xd228) (local.get $rest))
    (i32.shr_u (local.get $at) (i32.const 3)))

  ;; Mixes the words of rows, so many each, into their hashes. What is behind the last row is mixed, too.
  (func (export "mixWords") (param $rows i32) (param $width i32)
    (local $at i32) (local $to i32) (local $end i32) (local $last i32) (local $hash i32) (local $a v128) (local $b v128)
    (local $h v128)
    (local.set $at (i32.const 0xe000))
    (local.set $to (i32.const 0x16000))
    (local.set $end (i32.add (local.get $to) (i32.shl (local.get $rows) (i32.const 2))))
    (block $through
      (loop $row
        (br_if $through (i32.ge_u (local.get $to) (local.get $end)))
        (if (i32.le_u (local.get $width) (i32.const 2))
          (then
            (local.set $a (v128.load (local.get $at)))
            (local.set $h (v128.load (local.get $to)))
            (if (i32.eq (local.get $width) (i32.const 2))
              (then
                (local.set $b (v128.load offset=16 (local.get $at)))
                (local.set $at (i32.add (local.get $at) (i32.const 16)))
                (local.set $h
                  (v128.xor (local.get $h)
                    (i8x16.shuffle 0 1 2 3 8 9 10 11 16 17 18 19 24 25 26 27 (local.get $a) (local.get $b))))
                (local.set $h
                  (i32x4.add
                    (i32x4.mul
                      (v128.or (i32x4.shl (local.get $h) (i32.const 13)) (i32x4.shr_u (local.get $h) (i32.const 19)))
                      (v128.const i32x4 0x5bd1e995 0x5bd1e995 0x5bd1e995 0x5bd1e995))
                    (v128.const i32x4 0x38495ab5 0x38495ab5 0x38495ab5 0x38495ab5)))
                (local.set $a
                  (i8x16.shuffle 4 5 6 7 12 13 14 15 20 21 22 23 28 29 30 31 (local.get $a) (local.get $b)))))
            (local.set $h (v128.xor (local.get $h) (local.get $a)))
            (local.set $h
              (i32x4.add
                (i32x4.mul
                  (v128.or (i32x4.shl (local.get $h) (i32.const 13)) (i32x4.shr_u (local.get $h) (i32.const 19)))
                  (v128.const i32x4 0x5bd1e995 0x5bd1e995 0x5bd1e995 0x5bd1e995))
                (v128.const i32x4 0x38495ab5 0x38495ab5 0x38495ab5 0x38495ab5)))
            (v128.store (local.get $to) (local.get $h))
            (local.set $at (i32.add (local.get $at) (i32.const 16)))
            (local.set $to (i32.add (local.get $to) (i32.const 16)))
            (br $row)))

        (local.set $hash (i32.load (local.get $to)))
        (local.set $last (i32.add (local.get $at) (i32.shl (local.get $width) (i32.const 2))))
        (loop $word
          (local.set $hash
            (i32.add
              (i32.mul
                (i32.rotl (i32.xor (local.get $hash) (i32.load (local.get $at))) (i32.const 13))
                (i32.const 0x5bd1e995))
              (i32.const 0x38495ab5)))
          (local.set $at (i32.add (local.get $at) (i32.const 4)))
          (br_if $word (i32.ne (local.get $at) (local.get $last))))
        (i32.store (local.get $to) (local.get $hash))
        (local.set $to (i32.add (local.get $to) (i32.const 4)))
        (br $row))))

  ;; Ends the hashes of rows, and moves those whose first `level` bits are zero to the start. Returns how many those are.
  (func (export "sample") (param $rows i32) (param $level i32) (result i32)
    (local $at i32) (local $to i32) (local $end i32) (local $four v128) (local $mask i32) (local $next i32)
    (local.set $at (i32.const 0x16000))
    (local.set $to (local.get $at))
    (local.set $end (i32.add (local.get $at) (i32.shl (local.get $rows) (i32.const 2))))
    (local.set $mask
      (select (i32.shl (i32.const -1) (i32.sub (i32.const 32) (local.get $level))) (i32.const 0) (local.get $level)))
    (block $through
      (loop $rows
        (br_if $through (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $four (v128.load (local.get $at)))
        (local.set $four
          (i32x4.mul
            (v128.xor (local.get $four) (i32x4.shr_u (local.get $four) (i32.const 16)))
            (v128.const i32x4 0x85ebca6b 0x85ebca6b 0x85ebca6b 0x85ebca6b)))
        (local.set $four
          (i32x4.mul
            (v128.xor (local.get $four) (i32x4.shr_u (local.get $four) (i32.const 13)))
            (v128.const i32x4 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35)))
        (local.set $four (v128.xor (local.get $four) (i32x4.shr_u (local.get $four) (i32.const 16))))
        (if
          (i32x4.all_true (v128.and (local.get $four) (i32x4.splat (local.get $mask))))
          (then
            (local.set $at (i32.add (local.get $at) (i32.const 16)))
            (br $rows)))

        ;; Hashes move to the left, or stay: those of these rows are in the vector.
        (v128.store (local.get $at) (local.get $four))
        (local.set $next (i32.add (local.get $at) (i32.const 16)))
        (local.set $next (select (local.get $next) (local.get $end) (i32.lt_u (local.get $next) (local.get $end))))
        (loop $row
          (if (i32.eqz (i32.and (i32.load (local.get $at)) (local.get $mask)))
            (then
              (i32.store (local.get $to) (i32.load (local.get $at)))
              (local.set $to (i32.add (local.get $to) (i32.const 4)))))
          (local.set $at (i32.add (local.get $at) (i32.const 4)))
          (br_if $row (i32.lt_u (local.get $at) (local.get $next))))
        (br $rows)))
    (i32.shr_u (i32.sub (local.get $to) (i32.const 0x16000)) (i32.const 2))))
