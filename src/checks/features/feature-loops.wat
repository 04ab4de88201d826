;; Loops over rows of floats (f32) with the processor's vectors, for feature-loops.ts. Addresses and strides are bytes.
;;
;; Sums are exact: each number is split at one bit for all of a column, which the largest number decides. The upper parts
;; of 2^b numbers have at most the 53 bits that a float64 adds without rounding; so have the lower parts if the numbers'
;; exponents differ by 83 - 2 b at most.
(module
  (import "memory" "memory" (memory 4096))

  ;; The first `columns` columns, at least four, of `rows` rows, whose starts are `stride` apart, in blocks of 2^b rows.
  ;; Stores what is known of a block at `to`, four planes of `columns`, and its sums at `sums`, two planes; those of the next
  ;; block behind it.
  (func (export "measure")
    (param $at i32) (param $stride i32) (param $columns i32) (param $rows i32) (param $b i32) (param $to i32)
    (param $sums i32)
    (local $plane i32) (local $many i32) (local $column i32) (local $offset i32)
    (local.set $plane (i32.shl (local.get $columns) (i32.const 2)))
    (block $through
      (loop $nextBlock
        (br_if $through (i32.eqz (local.get $rows)))
        (local.set $many (i32.shl (i32.const 1) (local.get $b)))
        (if (i32.lt_u (local.get $rows) (local.get $many)) (then (local.set $many (local.get $rows))))
        (local.set $column (i32.const 0))
        (loop $nextFour
          ;; The last four may be among those before, too.
          (local.set $offset
            (i32.shl
              (select (local.get $column) (i32.sub (local.get $columns) (i32.const 4))
                (i32.le_u (i32.add (local.get $column) (i32.const 4)) (local.get $columns)))
              (i32.const 2)))
          (call $measureFour
            (i32.add (local.get $at) (local.get $offset)) (local.get $stride) (local.get $many) (local.get $b)
            (i32.add (local.get $to) (local.get $offset))
            (i32.add (local.get $sums) (i32.shl (local.get $offset) (i32.const 1)))
            (local.get $plane))
          (local.set $column (i32.add (local.get $column) (i32.const 4)))
          (br_if $nextFour (i32.lt_u (local.get $column) (local.get $columns))))
        (local.set $rows (i32.sub (local.get $rows) (local.get $many)))
        (local.set $at (i32.add (local.get $at) (i32.mul (local.get $many) (local.get $stride))))
        (local.set $to (i32.add (local.get $to) (i32.shl (local.get $plane) (i32.const 2))))
        (local.set $sums (i32.add (local.get $sums) (i32.shl (local.get $plane) (i32.const 2))))
        (br $nextBlock))))

  ;; Four columns side by side, of `rows` rows, at most 2^b. Stores four values each at `to` and `plane` bytes further on:
  ;; the least and the greatest number (f32), minus how many are not NaN (i32), -1 if the sums are exact, else 0 (i32).
  ;; Stores at `sums` and 2 · `plane` further on (f64): the sums of the upper and of the lower parts.
  ;; NaN counts as 0 in sums, and is neither the least nor the greatest.
  (func $measureFour
    (param $at i32) (param $stride i32) (param $rows i32) (param $b i32) (param $to i32) (param $sums i32) (param $plane i32)
    (local $place i32) (local $left i32) (local $x v128) (local $isNumber v128) (local $unsigned v128)
    (local $least v128) (local $greatest v128) (local $smallest v128) (local $numbers v128) (local $exponent v128)
    (local $half v128) (local $upper v128) (local $splitAb v128) (local $splitCd v128)
    (local $upperAb v128) (local $upperCd v128) (local $lowerAb v128) (local $lowerCd v128)
    (local.set $unsigned (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
    (local.set $least (v128.const f32x4 inf inf inf inf))
    (local.set $greatest (v128.const f32x4 -inf -inf -inf -inf))
    ;; The smallest magnitude but 0, less 1 in its last bit: that of 0 is the largest of all.
    (local.set $smallest (v128.const i32x4 -1 -1 -1 -1))
    (local.set $place (local.get $at))
    (local.set $left (local.get $rows))
    (loop $next
      (local.set $x (v128.load (local.get $place)))
      (local.set $numbers (i32x4.add (local.get $numbers) (f32x4.eq (local.get $x) (local.get $x))))
      (local.set $least (f32x4.pmin (local.get $least) (local.get $x)))
      (local.set $greatest (f32x4.pmax (local.get $greatest) (local.get $x)))
      (local.set $smallest
        (i32x4.min_u (local.get $smallest)
          (i32x4.add (v128.and (local.get $x) (local.get $unsigned)) (v128.const i32x4 -1 -1 -1 -1))))
      (local.set $place (i32.add (local.get $place) (local.get $stride)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $next (local.get $left)))
    (v128.store (local.get $to) (local.get $least))
    (local.set $place (i32.add (local.get $to) (local.get $plane)))
    (v128.store (local.get $place) (local.get $greatest))
    (local.set $place (i32.add (local.get $place) (local.get $plane)))
    (v128.store (local.get $place) (local.get $numbers))
    ;; The exponent of the largest magnitude,
    (local.set $exponent
      (i32x4.shr_u
        (i32x4.max_u
          (v128.and (local.get $least) (local.get $unsigned))
          (v128.and (local.get $greatest) (local.get $unsigned)))
        (i32.const 23)))
    ;; and whether the smallest one's is near enough. An infinite one's never is.
    (local.set $smallest
      (i32x4.shr_u (i32x4.add (local.get $smallest) (v128.const i32x4 1 1 1 1)) (i32.const 23)))
    (local.set $place (i32.add (local.get $place) (local.get $plane)))
    (v128.store (local.get $place)
      (v128.or
        (i32x4.eq (local.get $numbers) (v128.const i32x4 0 0 0 0))
        (v128.and
          (i32x4.lt_s (local.get $exponent) (v128.const i32x4 255 255 255 255))
          (i32x4.le_s
            (i32x4.sub (local.get $exponent) (local.get $smallest))
            (i32x4.splat (i32.sub (i32.const 83) (i32.shl (local.get $b) (i32.const 1))))))))
    ;; What splits numbers is 1.5 · 2^(exponent - 127 + b): added and taken off again, it rounds to a multiple of the
    ;; lowest bit of the upper part. Its bits are made here.
    (local.set $splitAb
      (i64x2.add
        (i64x2.shl
          (i64x2.add
            (i64x2.extend_low_i32x4_u (local.get $exponent))
            (i64x2.splat (i64.extend_i32_u (i32.add (i32.const 896) (local.get $b)))))
          (i32.const 52))
        (v128.const i64x2 0x8000000000000 0x8000000000000)))
    (local.set $splitCd
      (i64x2.add
        (i64x2.shl
          (i64x2.add
            (i64x2.extend_high_i32x4_u (local.get $exponent))
            (i64x2.splat (i64.extend_i32_u (i32.add (i32.const 896) (local.get $b)))))
          (i32.const 52))
        (v128.const i64x2 0x8000000000000 0x8000000000000)))
    (local.set $place (local.get $at))
    (local.set $left (local.get $rows))
    (loop $next
      (local.set $x (v128.load (local.get $place)))
      (local.set $x (v128.and (local.get $x) (f32x4.eq (local.get $x) (local.get $x))))
      (local.set $half (f64x2.promote_low_f32x4 (local.get $x)))
      (local.set $upper
        (f64x2.sub (f64x2.add (local.get $half) (local.get $splitAb)) (local.get $splitAb)))
      (local.set $upperAb (f64x2.add (local.get $upperAb) (local.get $upper)))
      (local.set $lowerAb (f64x2.add (local.get $lowerAb) (f64x2.sub (local.get $half) (local.get $upper))))
      (local.set $half
        (f64x2.promote_low_f32x4
          (i8x16.shuffle 8 9 10 11 12 13 14 15 8 9 10 11 12 13 14 15 (local.get $x) (local.get $x))))
      (local.set $upper
        (f64x2.sub (f64x2.add (local.get $half) (local.get $splitCd)) (local.get $splitCd)))
      (local.set $upperCd (f64x2.add (local.get $upperCd) (local.get $upper)))
      (local.set $lowerCd (f64x2.add (local.get $lowerCd) (f64x2.sub (local.get $half) (local.get $upper))))
      (local.set $place (i32.add (local.get $place) (local.get $stride)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $next (local.get $left)))
    (v128.store (local.get $sums) (local.get $upperAb))
    (v128.store offset=16 (local.get $sums) (local.get $upperCd))
    (local.set $sums (i32.add (local.get $sums) (i32.shl (local.get $plane) (i32.const 1))))
    (v128.store (local.get $sums) (local.get $lowerAb))
    (v128.store offset=16 (local.get $sums) (local.get $lowerCd))))
